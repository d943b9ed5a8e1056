//! Brings the watches to what they should be. Blocking: it looks at folders and talks to the notification thread.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use notify::{ErrorKind, RecursiveMode};

use super::Backend;
use super::board::{Board, Names, PROBE, Pen};
use crate::intake::file_system::{FileSystem, file_system};
use crate::messages::watcher::WatchedFolder;

/// How long the notice of a probe file may take. Under full load 5 ms were measured.
const PROBE_LIMIT: Duration = Duration::from_secs(1);

/// Owns the inotify instance.
pub(super) struct Arranger {
    pub(super) make: fn(Pen) -> notify::Result<Backend>,
    pub(super) actor: ractor::ActorRef<crate::messages::watcher::WatcherMsg>,
    pub(super) board: Arc<Board>,
    backend: Option<Backend>,
    /// What is watched, and which folder that was.
    armed: HashMap<PathBuf, FolderId>,
    /// Folders of which a probe file has shown that notices come.
    proven: HashSet<PathBuf>,
}

/// Tells a folder from another one that was made later under its name. File systems use inode numbers again at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FolderId {
    device: u64,
    inode: u64,
    born: Option<SystemTime>,
}

/// What one project asks for.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) id: u64,
    pub(super) folders: Vec<WatchedFolder>,
    /// It failed a moment ago: leave it.
    pub(super) skip: bool,
}

/// What became of it.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) id: u64,
    /// A watch was set: what happened before it was not told.
    pub(super) armed: bool,
    pub(super) notices: Proof,
}

/// Whether notices come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// They do.
    Come,
    /// The folder is not there: not known.
    Unknown,
    /// They do not, and why.
    None(String),
}

// === impl Arranger ===

impl Arranger {
    pub(super) fn new(
        make: fn(Pen) -> notify::Result<Backend>,
        actor: ractor::ActorRef<crate::messages::watcher::WatcherMsg>,
        board: Arc<Board>,
    ) -> Self {
        Arranger { make, actor, board, backend: None, armed: HashMap::new(), proven: HashSet::new() }
    }

    /// The instance has failed: the next arrangement makes another.
    pub(super) fn reset(&mut self) {
        self.backend = None;
        self.armed.clear();
        self.proven.clear();
    }

    /// Watches what the plans want and nothing else. `moved` came or went: their watches are dead, whatever a look
    /// at them says.
    pub(super) fn arrange(&mut self, plans: &[Plan], moved: &BTreeSet<PathBuf>) -> Vec<Done> {
        let wanted = wanted(plans);
        let stale: Vec<PathBuf> = self
            .armed
            .keys()
            .filter(|path| moved.contains(*path) || !wanted.contains_key(*path))
            .cloned()
            .collect();
        for path in stale {
            self.disarm(&path);
        }
        self.board.want(wanted);
        plans.iter().filter(|plan| !plan.skip).map(|plan| self.arrange_one(plan)).collect()
    }

    fn arrange_one(&mut self, plan: &Plan) -> Done {
        let mut armed = false;
        let notices = self.notices(plan, &mut armed).unwrap_or_else(Proof::None);
        Done { id: plan.id, armed, notices }
    }

    fn notices(&mut self, plan: &Plan, armed: &mut bool) -> Result<Proof, String> {
        let Some(first) = plan.folders.first() else { return Ok(Proof::Unknown) };
        if let Ok(FileSystem::Shared(name)) = file_system(&first.path) {
            return Err(format!("{} is on {name}, which does not tell all changes", first.path.display()));
        }
        for path in plan
            .folders
            .iter()
            .flat_map(|folder| folder.path.parent().into_iter().chain([folder.path.as_path()]))
        {
            *armed |= self.arm(path)?;
        }
        if !self.armed.contains_key(&first.path) {
            return Ok(Proof::Unknown);
        }
        if !self.proven.contains(&first.path) {
            self.probe(&first.path)?;
            self.proven.insert(first.path.clone());
        }
        Ok(Proof::Come)
    }

    /// Watches a folder, if it is there. True: it was not watched before.
    fn arm(&mut self, path: &Path) -> Result<bool, String> {
        let Some(id) = FolderId::of(path) else {
            self.disarm(path);
            return Ok(false);
        };
        if self.armed.get(path) == Some(&id) {
            return Ok(false);
        }
        self.disarm(path);
        let watched = self.backend().and_then(|backend| backend.watch(path, RecursiveMode::NonRecursive));
        match watched {
            Ok(()) => {
                self.armed.insert(path.to_owned(), id);
                Ok(true)
            }
            // It went in this moment; when it comes back, its parent tells.
            Err(notify::Error { kind: ErrorKind::PathNotFound, .. }) => Ok(false),
            Err(error) => Err(in_words(&error)),
        }
    }

    fn disarm(&mut self, path: &Path) {
        if self.armed.remove(path).is_some()
            && let Some(backend) = &mut self.backend
        {
            // notify has dropped the watch of a folder that is gone by itself.
            drop(backend.unwatch(path));
        }
    }

    fn backend(&mut self) -> notify::Result<&mut Backend> {
        let backend = match self.backend.take() {
            Some(backend) => backend,
            None => (self.make)(Pen::new(self.board.clone(), self.actor.clone()))?,
        };
        Ok(self.backend.insert(backend))
    }

    /// Makes a file and expects to be told: bind mounts and overlays of some containers say nothing at all.
    fn probe(&self, folder: &Path) -> Result<(), String> {
        let probe = folder.join(format!("{PROBE}{}", std::process::id()));
        self.board.expect_probe(probe.clone());
        let made = File::create(&probe).and_then(|_| fs::remove_file(&probe));
        made.map_err(|error| {
            format!("cannot try in {} whether changes are told: {error}", folder.display())
        })?;
        if self.board.probe_came(PROBE_LIMIT) {
            Ok(())
        } else {
            Err(format!("changes in {} are not told", folder.display()))
        }
    }
}

/// Every folder with the entries that matter, and the folders around them, for the day when they are replaced.
fn wanted(plans: &[Plan]) -> HashMap<PathBuf, Names> {
    let folders = || plans.iter().flat_map(|plan| &plan.folders);
    let mut wanted: HashMap<PathBuf, Names> =
        folders().map(|folder| (folder.path.clone(), folder.names.clone())).collect();
    for (parent, name) in folders().filter_map(|folder| folder.path.parent().zip(folder.path.file_name())) {
        if let Some(names) = wanted.entry(parent.to_owned()).or_insert_with(|| Some(Vec::new())) {
            names.push(name.to_owned());
        }
    }
    wanted
}

fn in_words(error: &notify::Error) -> String {
    match &error.kind {
        ErrorKind::MaxFilesWatch => "no inotify watch is left (fs.inotify.max_user_watches)".to_owned(),
        ErrorKind::Io(io) if io.raw_os_error() == Some(libc::EMFILE) => {
            "no inotify instance is left (fs.inotify.max_user_instances)".to_owned()
        }
        ErrorKind::Io(io) if io.kind() == io::ErrorKind::StorageFull => {
            "no inotify watch is left (fs.inotify.max_user_watches)".to_owned()
        }
        _ => format!("change notices cannot be had: {error}"),
    }
}

// === impl FolderId ===

impl FolderId {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_dir)?;
        Some(FolderId { device: metadata.dev(), inode: metadata.ino(), born: metadata.created().ok() })
    }
}
