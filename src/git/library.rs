//! Reading a work tree with libgit2 and our own walk: no program is started, except for filters.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use git2::{ObjectType, Oid, Repository};

use super::content::{Conversion, Maker};
use super::converter::Converter;
use super::filters::Workshop;
use super::ignore::Level;
use super::index::{Folder, Mode};
use super::objects::Objects;
use super::open::{Opener, private_folder};
use super::scan::Scan;
use super::settings::Settings;
use super::stat::{FileClock, Moment, Signature};
use super::warning::{Warnings, Why};
use super::{GitError, Program, saved};

/// Our index file is written when a restart without it would have to read this many files again.
const SAVE_AFTER: usize = 200;

/// The libgit2 way.
pub(super) struct Library {
    pub(super) opener: Opener,
    pub(super) program: Arc<Program>,
    pub(super) repository: Repository,
    pub(super) work_tree: PathBuf,
    private: PathBuf,
    settings: Settings,
    converter: Converter,
    pub(super) objects: Objects,
    clock: FileClock,
    /// The private index.
    pub(super) index: Folder,
    /// Paths at which the user's index has a repository, with the commit it has.
    submodules: BTreeMap<Vec<u8>, Oid>,
    /// The most that any attribute file seen so far asked for.
    conversion: Conversion,
    /// The user's index when it was last read.
    user_index: Option<Signature>,
    /// The git directory when it was opened.
    identity: Option<(u64, u64)>,
    /// Files read since our index file was written.
    unsaved: usize,
}

// === impl Library ===

impl Library {
    /// Opens the repository. [`GitError::Unsupported`]: only the git program can work on it.
    pub(super) fn open(opener: Opener, program: Arc<Program>) -> Result<Self, GitError> {
        let repository = opener.open()?;
        let Some(work_tree) = repository.workdir().map(Path::to_owned) else {
            return Err(GitError::Unsupported("it has no work tree".into()));
        };
        let private = private_folder(&repository);
        fs::create_dir_all(&private).map_err(GitError::file("make", &private))?;
        let settings = Settings::read(&repository, &opener.environment)?;
        if let Some(why) = &settings.unsupported {
            return Err(GitError::Unsupported(why.clone()));
        }
        let clock = FileClock::in_folder(&private).map_err(GitError::file("write in", &private))?;
        let mut library = Library {
            converter: Converter::new(opener.clone()),
            objects: Objects::new(&private, opener.durable),
            identity: identity(repository.path()),
            conversion: settings.conversion,
            index: Folder::default(),
            submodules: BTreeMap::new(),
            user_index: None,
            unsaved: 0,
            opener,
            program,
            repository,
            work_tree,
            private,
            settings,
            clock,
        };
        library.read_user_index()?;
        let saved = saved::read_own(&library.own_index(), &library.repository);
        library.index.apply_saved(saved);
        Ok(library)
    }

    /// The opened repository.
    pub(super) fn repository(&self) -> &Repository {
        &self.repository
    }

    /// The top of the work tree.
    pub(super) fn work_tree(&self) -> &Path {
        &self.work_tree
    }

    /// Whether the user's index has something in this folder of the work tree.
    pub(super) fn tracks_folder(&self, path: &Path) -> bool {
        let mut folder = &self.index;
        for name in path {
            match folder.find_folder(name.as_bytes()) {
                Ok(at) => folder = &folder.folders[at].folder,
                Err(_) => return false,
            }
        }
        folder.tracked
    }

    /// Whether a folder of the work tree is ignored, given that nothing in it is tracked.
    pub(super) fn ignores_folder(&self, folder: &Path) -> bool {
        let global = Level { rules: &self.settings.global_exclude, base: 0, above: None };
        let level = Level { rules: &self.settings.exclude, base: 0, above: Some(&global) };
        super::ignore::ignores_below(&self.work_tree, &level, folder)
    }

    /// `status.showUntrackedFiles = no`: how people keep a whole home folder in a repository.
    pub(super) fn hides_untracked(&self) -> bool {
        let value =
            self.repository.config().and_then(|config| config.get_string("status.showUntrackedFiles"));
        value.is_ok_and(|value| matches!(value.as_str(), "no" | "false" | "0" | "off"))
    }

    fn own_index(&self) -> PathBuf {
        self.private.join("index")
    }

    /// The repository may have been moved away, or removed and made anew, under our feet.
    pub(super) fn check_identity(&self) -> Result<(), GitError> {
        if identity(self.repository.path()) != self.identity {
            return Err(GitError::Moved(self.repository.path().to_owned()));
        }
        // Our folder may be lost; what was in it only saves time.
        fs::create_dir_all(&self.private).map_err(GitError::file("make", &self.private))
    }

    /// Reads the settings again when one of their files changed.
    pub(super) fn refresh_settings(&mut self) -> Result<(), GitError> {
        if !self.settings.are_outdated() {
            return Ok(());
        }
        self.repository = self.opener.open()?;
        self.settings = Settings::read(&self.repository, &self.opener.environment)?;
        self.converter.forget();
        if let Some(why) = &self.settings.unsupported {
            return Err(GitError::Unsupported(why.clone()));
        }
        self.conversion = self.conversion.max(self.settings.conversion);
        if self.conversion != Conversion::None {
            self.index.doubt_conversions();
        }
        Ok(())
    }

    /// Takes over the user's index when it changed: what is in it is tracked.
    pub(super) fn read_user_index(&mut self) -> Result<(), GitError> {
        let path = self.repository.path().join("index");
        let signature = Signature::of(&path);
        if signature == self.user_index {
            return Ok(());
        }
        let entries = saved::read(&path).map_err(|error| {
            GitError::Unsupported(format!("its index cannot be read: {}", error.message()))
        })?;
        if entries.iter().any(|entry| entry.path.ends_with(b".gitattributes")) {
            // git also reads attribute files that are in the index only.
            self.conversion = Conversion::Drivers;
        }
        let submodules = entries.iter().filter(|entry| entry.mode == Mode::Repository);
        self.submodules = submodules.map(|entry| (entry.path.clone(), entry.id)).collect();
        self.index.apply_tracked(entries, self.conversion != Conversion::None);
        self.converter.forget();
        self.user_index = signature;
        Ok(())
    }

    pub(super) fn walk(&mut self) -> Result<(Warnings, usize), GitError> {
        let now = self.clock.now().map_err(GitError::file("read the clock of", &self.private))?;
        let top = open_top(&self.work_tree)?;
        let global = Level { rules: &self.settings.global_exclude, base: 0, above: None };
        let level = Level { rules: &self.settings.exclude, base: 0, above: Some(&global) };
        let maker = Maker {
            repo: &self.repository,
            objects: &mut self.objects,
            conversion: self.conversion,
            converter: &mut self.converter,
            work_tree: &self.work_tree,
        };
        let mut scan = Scan::new(maker, &self.submodules, now, self.settings.file_mode);
        let done = scan.run(top, &mut self.index, &level);
        let Scan { warnings, for_program, read, maker, .. } = scan;
        self.conversion = maker.conversion;
        if let Err(error) = done {
            // It ended between a folder and those above, which do not know yet that something changed.
            self.index.forget_trees();
            return Err(error);
        }
        let mut warnings = warnings;
        if !for_program.is_empty() {
            self.convert(&for_program, now, &mut warnings)?;
        }
        self.unsaved += read;
        Ok((warnings, read))
    }

    /// Has the git program convert what libgit2 cannot.
    fn convert(&mut self, paths: &[Vec<u8>], now: Moment, warnings: &mut Warnings) -> Result<(), GitError> {
        let user_index = self.repository.path().join("index");
        let workshop = Workshop {
            program: &self.program,
            work_tree: &self.work_tree,
            user_index: &user_index,
            private: &self.private,
            durable: self.opener.durable,
        };
        for (path, converted) in paths.iter().zip(workshop.convert(paths)?) {
            let Some(file) = self.index.changed_at(path) else { continue };
            match converted {
                Ok(Some((id, mode))) => {
                    self.objects.note(id);
                    (file.id, file.mode, file.present) = (id, mode, true);
                    // The stat is from before the conversion, so a change during it shows.
                    file.stale = file.stat.is_racy(now);
                }
                Ok(None) => file.present = false,
                Err(error) => {
                    warnings.add(path, Why::NotConverted(error));
                    file.keep();
                }
            }
        }
        Ok(())
    }

    /// Whether all objects of the last snapshot are in the repository. Those that are not are made again next time.
    pub(super) fn is_complete(&mut self) -> Result<bool, GitError> {
        let odb = self.repository.odb()?;
        let mut complete = true;
        self.index.each_file(&mut |file| {
            if file.present && file.mode != Mode::Repository && !odb.exists(file.id) {
                file.stale = true;
                complete = false;
            }
        });
        Ok(complete)
    }

    pub(super) fn write_tree(&mut self) -> Result<Oid, GitError> {
        let (objects, repository) = (&mut self.objects, &self.repository);
        match self.index.write_tree(&mut |kind, bytes| objects.put(repository, kind, bytes))? {
            Some(tree) => Ok(tree),
            None => self.objects.put(&self.repository, ObjectType::Tree, Vec::new()),
        }
    }

    pub(super) fn save_index(&mut self) {
        if self.unsaved < SAVE_AFTER {
            return;
        }
        match saved::write(&self.own_index(), &self.index) {
            Ok(()) => self.unsaved = 0,
            // It only saves time after a restart.
            Err(error) => tracing::debug!(%error, "private index was not written"),
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    Signature::of(path).map(|signature| signature.identity())
}

fn open_top(path: &Path) -> Result<OwnedFd, GitError> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).map_err(|error| GitError::file("open", path)(error.into()))
}
