//! A call as the supervisor describes it, and its form in the memfd that the agent-to-be reads.

use std::ffi::{CString, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::error::ProcessError;

/// What to start. Nothing of the supervisor's own environment or folder is added.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CallSpec {
    /// Program and arguments. A program without a slash is looked up in the `PATH` of `env`.
    pub argv: Vec<OsString>,
    /// The complete environment.
    pub env: Vec<(OsString, OsString)>,
    /// Working folder, absolute.
    pub cwd: PathBuf,
    /// What the program finds on stdin, then end of file. Empty: stdin is `/dev/null`.
    pub stdin: Vec<u8>,
}

/// A call as decoded by the agent-to-be, ready for `execve`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ExecSpec {
    pub(super) has_stdin: bool,
    pub(super) cwd: CString,
    pub(super) argv: Vec<CString>,
    /// `KEY=VALUE` each.
    pub(super) env: Vec<CString>,
}

// === impl CallSpec ===

impl fmt::Debug for CallSpec {
    /// Without the environment's values, which hold credentials, and without the prompt.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallSpec")
            .field("argv", &self.argv)
            .field("cwd", &self.cwd)
            .field("env", &self.env.len())
            .field("stdin", &self.stdin.len())
            .finish()
    }
}

impl CallSpec {
    /// The program's name or path.
    pub fn program(&self) -> PathBuf {
        self.argv.first().map(PathBuf::from).unwrap_or_default()
    }

    /// The entries by which processes of this call are found again: `LONGHAUL_*`, as `KEY=VALUE`.
    pub(super) fn markers(&self) -> Vec<OsString> {
        let ours = self.env.iter().filter(|(k, _)| k.as_bytes().starts_with(b"LONGHAUL_"));
        ours.map(entry).collect()
    }

    /// `[has stdin: 1 byte][argc: u32][envc: u32]`, then cwd, arguments and environment, NUL after each.
    pub(super) fn encode(&self) -> Result<Vec<u8>, ProcessError> {
        if self.argv.is_empty() {
            return Err(ProcessError::BadCall { what: "no program is given" });
        }
        if !self.cwd.is_absolute() {
            return Err(ProcessError::BadCall { what: "the working folder is not an absolute path" });
        }
        let mut bytes = vec![u8::from(!self.stdin.is_empty())];
        for n in [self.argv.len(), self.env.len()] {
            let n = u32::try_from(n).map_err(|_| ProcessError::BadCall { what: "too many arguments" })?;
            bytes.extend(n.to_le_bytes());
        }
        push(&mut bytes, self.cwd.as_os_str().as_bytes())?;
        for arg in &self.argv {
            push(&mut bytes, arg.as_bytes())?;
        }
        for pair in &self.env {
            push(&mut bytes, entry(pair).as_bytes())?;
        }
        Ok(bytes)
    }
}

fn entry((key, value): &(OsString, OsString)) -> OsString {
    let mut entry = key.clone();
    entry.push("=");
    entry.push(value);
    entry
}

fn push(bytes: &mut Vec<u8>, s: &[u8]) -> Result<(), ProcessError> {
    if s.contains(&0) {
        return Err(ProcessError::BadCall { what: "an argument, variable or path has a NUL byte in it" });
    }
    bytes.extend(s);
    bytes.push(0);
    Ok(())
}

// === impl ExecSpec ===

impl ExecSpec {
    /// `None` when `bytes` is not what [`CallSpec::encode`] wrote.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&has_stdin, rest) = bytes.split_first()?;
        let (argc, rest) = rest.split_first_chunk::<4>()?;
        let (envc, rest) = rest.split_first_chunk::<4>()?;
        let mut strings =
            rest.split_inclusive(|b| *b == 0).map(|s| CString::from_vec_with_nul(s.to_vec()).ok());
        let cwd = strings.next()??;
        let mut take = |n: [u8; 4]| -> Option<Vec<CString>> {
            (0..u32::from_le_bytes(n)).map(|_| strings.next().flatten()).collect()
        };
        let argv = take(*argc)?;
        let env = take(*envc)?;
        Some(ExecSpec { has_stdin: has_stdin == 1, cwd, argv, env })
    }

    /// The paths to try in turn: the program itself if it has a slash, else its name in each folder of `PATH`.
    pub(super) fn candidates(&self) -> Vec<CString> {
        let Some(program) = self.argv.first() else { return Vec::new() };
        if program.as_bytes().contains(&b'/') || program.is_empty() {
            return vec![program.clone()];
        }
        let path = self.env.iter().find_map(|e| e.as_bytes().strip_prefix(b"PATH="));
        // What execvp(3) takes without PATH, in glibc's order of preference.
        let folders = path.unwrap_or(b"/bin:/usr/bin").split(|b| *b == b':');
        let join = |folder: &[u8]| {
            // An empty element means the current folder.
            let folder =
                Path::new(std::ffi::OsStr::from_bytes(if folder.is_empty() { b"." } else { folder }));
            let path = folder.join(std::ffi::OsStr::from_bytes(program.as_bytes()));
            CString::new(path.into_os_string().into_encoded_bytes()).ok()
        };
        folders.filter_map(join).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spec(argv: &[&str], env: &[(&str, &str)]) -> CallSpec {
        CallSpec {
            argv: argv.iter().map(OsString::from).collect(),
            env: env.iter().map(|(k, v)| (k.into(), v.into())).collect(),
            cwd: "/tmp".into(),
            stdin: Vec::new(),
        }
    }

    proptest! {
        #[test]
        fn encoding_keeps_every_string(
            argv in prop::collection::vec("[^\0]{0,20}", 1..6),
            env in prop::collection::vec(("[A-Z]{1,5}", "[^\0]{0,20}"), 0..6),
        ) {
            let spec = CallSpec {
                argv: argv.iter().map(OsString::from).collect(),
                env: env.iter().map(|(k, v)| (k.into(), v.into())).collect(),
                cwd: "/a b".into(),
                stdin: vec![0],
            };
            let exec = ExecSpec::decode(&spec.encode().unwrap()).unwrap();
            prop_assert!(exec.has_stdin);
            prop_assert_eq!(exec.cwd.to_bytes(), b"/a b");
            let texts = |v: &[CString]| v.iter().map(|s| s.to_str().unwrap().to_owned()).collect::<Vec<_>>();
            prop_assert_eq!(texts(&exec.argv), argv);
            prop_assert_eq!(texts(&exec.env), env.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>());
        }

        #[test]
        fn decoding_survives_anything(bytes: Vec<u8>) {
            let _ = ExecSpec::decode(&bytes);
        }
    }

    #[test]
    fn what_cannot_be_told_to_the_kernel_is_refused() {
        assert!(spec(&[], &[]).encode().is_err());
        assert!(spec(&["a\0b"], &[]).encode().is_err());
        assert!(CallSpec { cwd: "relative".into(), ..spec(&["a"], &[]) }.encode().is_err());
    }

    #[test]
    fn only_a_bare_name_is_looked_up() {
        let candidates = |argv: &str, path: &str| {
            let exec = ExecSpec::decode(&spec(&[argv], &[("PATH", path)]).encode().unwrap()).unwrap();
            exec.candidates().into_iter().map(|c| c.into_string().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(candidates("/bin/ls", "/x"), ["/bin/ls"]);
        assert_eq!(candidates("./ls", "/x"), ["./ls"]);
        assert_eq!(candidates("ls", "/x::/y/"), ["/x/ls", "./ls", "/y/ls"]);
    }

    #[test]
    fn debug_shows_no_secret() {
        let text = format!("{:?}", spec(&["claude"], &[("ANTHROPIC_API_KEY", "sk-secret")]));
        assert!(!text.contains("secret"), "{text}");
    }
}
