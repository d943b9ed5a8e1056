//! A repository of its own for a test, with the real git as the oracle.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Call, Durability, Environment, Opening, Program, Repo, saved};

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
    pub(super) fn path(&self) -> PathBuf {
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

    /// Runs git with these arguments before the subcommand, too.
    pub(super) fn git_raw(&self, arguments: &[&str]) {
        let call = self.program.call(&self.path(), "-c").arg("user.name=t");
        call.args(["-c", "user.email=t@example.invalid"]).args(arguments).run().unwrap();
    }

    /// Runs git with more variables.
    pub(super) fn git_env(&self, arguments: &[&str], variables: &[(&str, &str)]) -> String {
        let call = variables.iter().fold(self.call(arguments), |call, (name, value)| call.env(name, value));
        String::from_utf8(call.run().unwrap().stdout).unwrap().trim_end().to_owned()
    }

    /// Runs git with input and accepted exit codes.
    pub(super) fn git_with(&self, arguments: &[&str], input: &[u8], accepted: &[i32]) -> Vec<u8> {
        self.call(arguments).stdin(input).accept(accepted).run().unwrap().stdout
    }

    fn call(&self, arguments: &[&str]) -> Call<'_> {
        let call = self.program.call(&self.path(), arguments[0]).args(&arguments[1..]);
        call.config("user.name=t").config("user.email=t@example.invalid")
    }

    /// Writes a file, with the folders above it.
    pub(super) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Opens the project with a program of its own, so that calls can be counted.
    pub(super) fn open(&self) -> Repo {
        self.open_with(&[], Durability::Process)
    }

    /// Opens the project with more variables.
    pub(super) fn open_with(&self, variables: &[(&str, &str)], durability: Durability) -> Repo {
        let program = Arc::new(Program::new(self.environment(variables)));
        match Repo::open_with(&self.path(), &program, durability) {
            Opening::Git(repo) => *repo,
            other => panic!("{other:?}"),
        }
    }

    /// What git would add: the tree of `git add -A` on a copy of the user's index.
    pub(super) fn oracle(&self) -> String {
        let copy = self.folder.path().join("oracle-index");
        let git_dir = PathBuf::from(self.git(&["rev-parse", "--absolute-git-dir"]));
        saved::copy(&git_dir.join("index"), &copy).unwrap();
        let index = [("GIT_INDEX_FILE", copy.to_str().unwrap())];
        let add = ["add", "-A", "--ignore-errors", "."];
        let add = self.call(&add).env(index[0].0, index[0].1).config("advice.addEmbeddedRepo=false");
        add.accept(&[0, 1]).run().unwrap();
        self.git_env(&["write-tree"], &index)
    }

    /// Commits everything but one folder.
    pub(super) fn commit_all_but(&self, folder: &str) {
        self.git(&["add", "-A", ".", &format!(":(exclude){folder}")]);
        self.git(&["commit", "-q", "-m", "x"]);
    }

    /// Commits everything.
    pub(super) fn commit_all(&self) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", "x"]);
    }
}
