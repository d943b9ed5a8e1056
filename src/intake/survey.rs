//! Counts a project's source files, as far as needed, and notes what a first look shows.
//!
//! Small trees are walked by the calling thread: starting threads costs more than walking them. Only a tree that is
//! still not done after many entries is walked by several. `.gitignore` counts as for git, with or without a
//! repository; links are never followed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::FileType;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ignore::{DirEntry, WalkBuilder, WalkState};

use super::languages::{MANIFESTS, language};
use crate::domain::complexity;

/// Entries that one thread walks before several begin anew.
const SERIAL_ENTRIES: usize = 3000;

/// More threads than this gain nothing: the file system is the limit.
const MAX_THREADS: usize = 8;

/// Folders that are never walked: version control, our own state, and what tools fetched or made, which nobody has to
/// understand. `target` is only passed over if it calls itself a cache.
const SKIPPED: [&str; 15] = [
    ".git",
    ".longhaul",
    ".hg",
    ".svn",
    ".jj",
    "node_modules",
    "bower_components",
    ".venv",
    "__pycache__",
    ".tox",
    ".mypy_cache",
    ".pytest_cache",
    ".gradle",
    ".next",
    "Pods",
];

/// How far to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Until the class of the job is certain.
    Class,
    /// Everything.
    Whole,
}

/// What a walk shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Survey {
    /// Source files seen.
    pub source_files: usize,
    /// Every file was seen; false when counting stopped because the class was certain.
    pub whole: bool,
    /// Languages with their files, most first.
    pub languages: Vec<(&'static str, usize)>,
    /// Top-level files that say how the project is built or what it wants.
    pub manifests: Vec<&'static str>,
    /// Folders and files that could not be read.
    pub unreadable: usize,
}

/// Counts by one thread.
#[derive(Default)]
struct Counts {
    languages: BTreeMap<&'static str, usize>,
    unreadable: usize,
}

/// Looks at the project in `root`. It never fails: what cannot be read is counted. Blocking; 50,000 files take well
/// below a second on a warm cache.
pub fn survey(root: &Path, depth: Depth) -> Survey {
    let (counts, whole) = match serial(root, depth) {
        Some(done) => done,
        None => parallel(root, depth),
    };
    let mut languages: Vec<_> = counts.languages.into_iter().collect();
    languages.sort_by_key(|(name, files)| (std::cmp::Reverse(*files), *name));
    Survey {
        source_files: languages.iter().map(|(_, files)| files).sum(),
        whole,
        languages,
        manifests: manifests(root),
        unreadable: counts.unreadable,
    }
}

// === impl Survey ===

impl Survey {
    /// What a first look shows, a sentence each, for the prompt of analysis mode.
    pub fn facts(&self) -> Vec<String> {
        let mut facts = Vec::new();
        if !self.languages.is_empty() {
            let main = self.languages.iter().take(5).map(|(name, files)| format!("{name} ({files})"));
            let count = if self.whole { format!("{}", self.source_files) } else { "many".into() };
            facts.push(format!("{count} source files: {}", main.collect::<Vec<_>>().join(", ")));
        } else if self.whole && self.unreadable == 0 {
            facts.push("no source files yet".into());
        }
        if !self.manifests.is_empty() {
            facts.push(format!("at the top level: {}", self.manifests.join(", ")));
        }
        if self.unreadable > 0 {
            facts.push(format!("{} folders or files cannot be read", self.unreadable));
        }
        facts
    }
}

/// `None` when the tree is large: then several threads do it better.
fn serial(root: &Path, depth: Depth) -> Option<(Counts, bool)> {
    let mut counts = Counts::default();
    let mut sources = 0;
    for (seen, entry) in walk(root).build().enumerate() {
        if counts.add(entry) {
            sources += 1;
            if depth == Depth::Class && complexity::is_certain(sources) {
                return Some((counts, false));
            }
        }
        if seen >= SERIAL_ENTRIES {
            return None;
        }
    }
    Some((counts, true))
}

fn parallel(root: &Path, depth: Depth) -> (Counts, bool) {
    let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, MAX_THREADS);
    let total = Mutex::new(Counts::default());
    let sources = AtomicUsize::new(0);
    walk(root).threads(threads).build_parallel().run(|| {
        let mut local = Collected { counts: Counts::default(), total: &total };
        let sources = &sources;
        Box::new(move |entry| {
            if local.counts.add(entry) {
                let now = sources.fetch_add(1, Ordering::Relaxed) + 1;
                if depth == Depth::Class && complexity::is_certain(now) {
                    return WalkState::Quit;
                }
            }
            WalkState::Continue
        })
    });
    let counts = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let stopped = depth == Depth::Class && complexity::is_certain(sources.into_inner());
    (counts, !stopped)
}

/// A thread's counts; added to the total when the thread is done.
struct Collected<'a> {
    counts: Counts,
    total: &'a Mutex<Counts>,
}

impl Drop for Collected<'_> {
    fn drop(&mut self) {
        let mut total = self.total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        total.unreadable += self.counts.unreadable;
        for (language, files) in std::mem::take(&mut self.counts.languages) {
            *total.languages.entry(language).or_default() += files;
        }
    }
}

fn walk(root: &Path) -> WalkBuilder {
    let mut walk = WalkBuilder::new(root);
    walk.hidden(false)
        .follow_links(false)
        .ignore(false)
        .git_ignore(true)
        .git_exclude(true)
        // What a user ignores in all of his projects must not change what this one is.
        .git_global(false)
        .require_git(false)
        .filter_entry(|entry| !is_skipped(entry));
    walk
}

fn is_skipped(entry: &DirEntry) -> bool {
    if entry.depth() == 0 || !entry.file_type().is_some_and(|kind| kind.is_dir()) {
        return false;
    }
    let name = entry.file_name();
    SKIPPED.iter().any(|skipped| name == OsStr::new(skipped))
        || (name == OsStr::new("target") && entry.path().join("CACHEDIR.TAG").exists())
}

fn manifests(root: &Path) -> Vec<&'static str> {
    let Ok(entries) = std::fs::read_dir(root) else { return Vec::new() };
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    MANIFESTS.iter().copied().filter(|manifest| names.iter().any(|name| name == manifest)).collect()
}

// === impl Counts ===

impl Counts {
    /// True if the entry is a source file.
    fn add(&mut self, entry: Result<DirEntry, ignore::Error>) -> bool {
        let Ok(entry) = entry else {
            self.unreadable += 1;
            return false;
        };
        if !entry.file_type().as_ref().is_some_and(FileType::is_file) {
            return false;
        }
        let Some(language) = language(entry.file_name().as_bytes()) else { return false };
        *self.languages.entry(language).or_default() += 1;
        true
    }
}

#[cfg(test)]
mod tests;
