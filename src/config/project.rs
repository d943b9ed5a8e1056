//! Which folder is the project, and the files in its `.longhaul/`.

use std::io;
use std::path::{Path, PathBuf};

/// The folder of ours in a project.
pub const DOT: &str = ".longhaul";

/// The paths of a project. Any of them may be missing on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectPaths {
    /// The project folder: absolute, without symbolic links.
    pub root: PathBuf,
    /// `.longhaul/`
    pub dot: PathBuf,
    /// Project settings.
    pub config: PathBuf,
    /// Advisory lock of the running session.
    pub lock: PathBuf,
    /// Advisory lock of the keeper: calls may still be there.
    pub call_lock: PathBuf,
    /// The database.
    pub state_db: PathBuf,
    /// The journal for people.
    pub events: PathBuf,
    /// Folder of attempt logs.
    pub logs: PathBuf,
    /// Signal file.
    pub pause: PathBuf,
    /// Signal file.
    pub stop: PathBuf,
    /// Drop-in message file.
    pub human_input: PathBuf,
    /// Folder of queued messages.
    pub inbox: PathBuf,
    /// Folder of what we say to scripts.
    pub signals: PathBuf,
    /// Small projection for scripts.
    pub status_json: PathBuf,
    /// Folder of the agent's claims.
    pub claims: PathBuf,
    /// Folder of parallel lanes.
    pub worktrees: PathBuf,
}

/// Where a project may be found.
#[derive(Debug, Clone, Copy)]
pub struct Lookup<'a> {
    /// `--project`.
    pub named: Option<&'a Path>,
    /// Where the command was started.
    pub current: &'a Path,
    /// The host-wide folder: one that is called `.longhaul` makes no project of the folder above it.
    pub longhaul_home: Option<&'a Path>,
}

// === impl ProjectPaths ===

impl ProjectPaths {
    /// The paths below `root`, which should be absolute.
    pub fn new(root: PathBuf) -> Self {
        let dot = root.join(DOT);
        ProjectPaths {
            config: dot.join("config.toml"),
            lock: dot.join("lock"),
            call_lock: dot.join("call.lock"),
            state_db: dot.join("state.db"),
            events: dot.join("events.jsonl"),
            logs: dot.join("logs"),
            pause: dot.join("PAUSE"),
            stop: dot.join("STOP"),
            human_input: dot.join("HUMAN_INPUT.md"),
            inbox: dot.join("inbox"),
            signals: dot.join("signals"),
            status_json: dot.join("status.json"),
            claims: dot.join("claims"),
            worktrees: dot.join("worktrees"),
            dot,
            root,
        }
    }
}

// === impl Lookup ===

impl Lookup<'_> {
    /// `--project`, else the nearest folder upward with `.longhaul/`; `None`: there is none. Fails when
    /// `--project` is no folder.
    pub fn find(&self) -> io::Result<Option<ProjectPaths>> {
        if let Some(named) = self.named {
            return folder(&self.current.join(named)).map(Some);
        }
        let current = self.current.canonicalize()?;
        let found = current.ancestors().find(|root| self.is_project(root));
        Ok(found.map(|root| ProjectPaths::new(root.to_owned())))
    }

    /// As [`find`](Self::find), else the current folder: for `run` and `init`.
    pub fn find_or_current(&self) -> io::Result<ProjectPaths> {
        match self.find()? {
            Some(found) => Ok(found),
            None => folder(self.current),
        }
    }

    fn is_project(&self, root: &Path) -> bool {
        let dot = root.join(DOT);
        // A lane's worktree has a `.longhaul/` for its claims, but belongs to the project around it.
        let inside_ours = root.iter().any(|part| part == DOT);
        let host_wide =
            || self.longhaul_home.is_some_and(|home| home.canonicalize().is_ok_and(|home| home == dot));
        !inside_ours && dot.is_dir() && !host_wide()
    }
}

fn folder(path: &Path) -> io::Result<ProjectPaths> {
    let root = path.canonicalize()?;
    if root.is_dir() { Ok(ProjectPaths::new(root)) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    fn lookup<'a>(named: Option<&'a Path>, current: &'a Path) -> Lookup<'a> {
        Lookup { named, current, longhaul_home: None }
    }

    #[test]
    fn the_nearest_folder_upward() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        // Accents, spaces and bytes that are no UTF-8.
        let root = top.join(OsStr::from_bytes(b"pr\xc3\xb6j \xff"));
        let deep = root.join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        assert_eq!(lookup(None, &deep).find().unwrap(), None);
        assert_eq!(lookup(None, &deep).find_or_current().unwrap().root, deep);
        std::fs::create_dir(root.join(DOT)).unwrap();
        assert_eq!(lookup(None, &deep).find().unwrap().unwrap().root, root);
        assert_eq!(lookup(Some(Path::new("..")), &deep).find().unwrap().unwrap().root, root.join("a"));
        assert!(lookup(Some(Path::new("nowhere")), &deep).find().is_err());
        std::fs::write(root.join("file"), "").unwrap();
        assert!(lookup(Some(&root.join("file")), &deep).find().is_err());
    }

    #[test]
    fn worktrees_and_the_host_wide_folder_are_no_projects() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let lane = top.join(".longhaul/worktrees/lane-2");
        std::fs::create_dir_all(lane.join(".longhaul/claims")).unwrap();
        assert_eq!(lookup(None, &lane).find().unwrap().unwrap().root, top);
        let home = top.join(DOT);
        let found = Lookup { longhaul_home: Some(&home), ..lookup(None, &top) }.find().unwrap();
        assert_eq!(found, None);
    }
}
