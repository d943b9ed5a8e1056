//! A repository of its own for a test, with the real git as the oracle.

use std::ffi::OsString;
use std::path::Path;

use super::{Environment, Program};

/// A fresh repository in a temporary folder, out of reach of the user's configuration.
pub(super) struct Sandbox {
    folder: tempfile::TempDir,
    program: Program,
}

impl Sandbox {
    /// After `git init`, without a commit.
    pub(super) fn new() -> Self {
        let sandbox = Self::without_repository();
        sandbox.git(&["init", "-q", "-b", "main"]);
        sandbox
    }

    /// An empty folder.
    pub(super) fn without_repository() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("work")).unwrap();
        let program = Program::new(Self::environment_in(folder.path(), &[]));
        Sandbox { folder, program }
    }

    /// The project folder.
    pub(super) fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("work")
    }

    /// The environment that the code under test gets, with more variables.
    pub(super) fn environment(&self, more: &[(&str, &str)]) -> Environment {
        Self::environment_in(self.folder.path(), more)
    }

    fn environment_in(folder: &Path, more: &[(&str, &str)]) -> Environment {
        let mut variables: Vec<(OsString, OsString)> = vec![
            ("HOME".into(), folder.join("home").into()),
            ("PATH".into(), std::env::var_os("PATH").unwrap()),
            ("GIT_CONFIG_GLOBAL".into(), folder.join("home/.gitconfig").into()),
            ("GIT_CONFIG_NOSYSTEM".into(), "1".into()),
            ("GIT_CEILING_DIRECTORIES".into(), folder.into()),
        ];
        variables.extend(more.iter().map(|(name, value)| (name.into(), value.into())));
        Environment::of(variables)
    }

    /// Runs git in the project folder and gives its output without the last line end.
    pub(super) fn git(&self, arguments: &[&str]) -> String {
        let output = self.git_with(arguments, &[], &[0]);
        String::from_utf8(output).unwrap().trim_end().to_owned()
    }

    /// Runs git with input and accepted exit codes.
    pub(super) fn git_with(&self, arguments: &[&str], input: &[u8], accepted: &[i32]) -> Vec<u8> {
        let call = self.program.call(&self.path(), arguments[0]).args(&arguments[1..]);
        let call = call.config("user.name=t").config("user.email=t@example.invalid");
        call.stdin(input).accept(accepted).run().unwrap().stdout
    }

    /// Writes a file, with the folders above it.
    pub(super) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Commits everything.
    pub(super) fn commit_all(&self) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", "x"]);
    }
}
