//! Which of the files that a spec refers to are there. They are followed for this list only and never inlined: the
//! agent reads what it needs.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::OFlags;

use crate::domain::prompt::ReferenceList;
use crate::domain::spec::{Spec, local_references};

/// Files that are listed, in all.
const MAX_FILES: usize = 200;

/// How far references of references are followed.
const MAX_DEPTH: usize = 8;

/// Of a referenced file this much is searched for further references. 1 MiB.
const MAX_READ: u64 = 1 << 20;

/// Names of files that are searched for further references.
const TEXTS: [&str; 7] = ["md", "markdown", "mdx", "txt", "rst", "adoc", "org"];

/// A text whose references are to be looked at.
struct Source {
    /// The folder that its references start from.
    folder: PathBuf,
    references: Vec<String>,
    depth: usize,
}

/// Follows references within a project.
struct Walk<'a> {
    /// The project's folder, canonical.
    project: &'a Path,
    /// Folders that may be looked into, canonical: the project's and the spec's own.
    roots: Vec<PathBuf>,
    /// Files that were met, by canonical path: circles end here.
    seen: BTreeSet<PathBuf>,
    list: ReferenceList,
    waiting: VecDeque<Source>,
}

/// Lists the files that the spec at `path` refers to, directly or through others, in a project at `project`. Paths are
/// relative to the project where they are in it. What cannot be read counts as missing. Nothing outside the project and
/// the spec's own folder is touched, by whatever `..` or link.
pub fn list(spec: &Spec, path: &Path, project: &Path) -> ReferenceList {
    let references = local_references(&spec.text);
    if references.is_empty() {
        return ReferenceList::default();
    }
    let project = project.canonicalize().unwrap_or_else(|_| project.to_owned());
    let spec_path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = spec_path.parent().unwrap_or(&project).to_owned();
    let mut walk = Walk {
        project: &project,
        roots: vec![project.clone(), folder.clone()],
        seen: BTreeSet::from([spec_path]),
        list: ReferenceList::default(),
        waiting: VecDeque::from([Source { folder, references, depth: 0 }]),
    };
    while let Some(source) = walk.waiting.pop_front() {
        for reference in &source.references {
            if walk.is_full() {
                walk.list.more = true;
                return walk.list;
            }
            walk.look_at(reference, &source);
        }
    }
    walk.list
}

// === impl Walk ===

impl Walk<'_> {
    fn is_full(&self) -> bool {
        self.list.existing.len() + self.list.missing.len() + self.list.outside.len() >= MAX_FILES
    }

    /// A reference may be meant from its file's folder (as links are) or from the project's (as people write).
    fn look_at(&mut self, reference: &str, source: &Source) {
        let candidates = [source.folder.join(reference), self.project.join(reference)].map(|p| normal(&p));
        let inside: Vec<&PathBuf> =
            candidates.iter().filter(|path| self.roots.iter().any(|root| path.starts_with(root))).collect();
        let Some(first) = inside.first() else {
            return push(&mut self.list.outside, reference.to_owned());
        };
        let Some(real) = inside.iter().find_map(|path| path.canonicalize().ok()) else {
            let shown = self.shown(first);
            return push(&mut self.list.missing, shown);
        };
        if !self.roots.iter().any(|root| real.starts_with(root)) {
            // A link that leads out.
            return push(&mut self.list.outside, reference.to_owned());
        }
        if !self.seen.insert(real.clone()) {
            return;
        }
        let shown = self.shown(&real);
        push(&mut self.list.existing, shown);
        if source.depth < MAX_DEPTH
            && let Some(references) = references_in(&real)
            && let Some(folder) = real.parent()
        {
            self.waiting.push_back(Source { folder: folder.to_owned(), references, depth: source.depth + 1 });
        }
    }

    fn shown(&self, path: &Path) -> String {
        path.strip_prefix(self.project).unwrap_or(path).to_string_lossy().into_owned()
    }
}

fn push(list: &mut Vec<String>, path: String) {
    if !list.contains(&path) {
        list.push(path);
    }
}

/// The references of a text file; `None` for anything else.
fn references_in(path: &Path) -> Option<Vec<String>> {
    let extension = path.extension()?.to_str()?;
    if !TEXTS.iter().any(|text| extension.eq_ignore_ascii_case(text)) {
        return None;
    }
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_READ).read_to_end(&mut bytes).ok()?;
    Some(local_references(&String::from_utf8_lossy(&bytes)))
}

/// The path without `.` and `..`, by its letters alone.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder with a project in it, so that there is an outside.
    struct Place {
        outer: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Self {
            let outer = tempfile::tempdir().unwrap();
            fs::create_dir_all(outer.path().join("project/docs")).unwrap();
            Place { outer }
        }

        fn project(&self) -> PathBuf {
            self.outer.path().join("project")
        }

        fn write(&self, path: &str, text: &str) -> &Self {
            fs::write(self.project().join(path), text).unwrap();
            self
        }

        fn list(&self, spec: &str) -> ReferenceList {
            let path = self.project().join("SPEC.md");
            self.write("SPEC.md", spec);
            list(&Spec::parse(spec.into(), Some("SPEC.md")), &path, &self.project())
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn ec_011_existing_and_missing_files_are_listed_and_circles_end() {
        let place = Place::new();
        place
            .write("sub.md", "Goes on in [b](docs/b.md), back to ./SPEC.md and ./sub.md")
            .write("docs/b.md", "Back to ../sub.md, to ./c.md and docs/d.md")
            .write("docs/d.md", "");
        let list = place.list("See ./sub.md and ./none.md.");
        assert_eq!(list.existing, names(&["sub.md", "docs/b.md", "docs/d.md"]));
        assert_eq!(list.missing, names(&["none.md", "docs/c.md"]));
        assert_eq!((list.outside.len(), list.more), (0, false));
    }

    #[test]
    fn ec_011_nothing_outside_the_project_is_looked_at() {
        let place = Place::new();
        fs::write(place.outer.path().join("secret.md"), "./leak.md").unwrap();
        symlink(place.outer.path().join("secret.md"), place.project().join("link.md")).unwrap();
        symlink(place.outer.path(), place.project().join("up")).unwrap();
        symlink("loop.md", place.project().join("loop.md")).unwrap();
        let list = place.list(
            "../secret.md ./link.md [x](up/secret.md) [y](/etc/passwd) ./docs/../../secret.md ./loop.md",
        );
        assert_eq!(list.existing, names(&[]));
        let outside = ["../secret.md", "./link.md", "up/secret.md", "/etc/passwd", "./docs/../../secret.md"];
        let mut found = list.outside.clone();
        found.sort();
        let mut expected = names(&outside);
        expected.sort();
        assert_eq!(found, expected);
        assert_eq!(list.missing, names(&["loop.md"]));
    }

    #[test]
    fn folders_and_pipes_are_listed_but_not_read() {
        let place = Place::new();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, place.project().join("pipe.md"), mode).unwrap();
        assert_eq!(place.list("./docs ./pipe.md").existing, names(&["docs", "pipe.md"]));
    }

    #[test]
    fn long_chains_and_long_lists_are_bounded() {
        let place = Place::new();
        for n in 0..50 {
            place.write(&format!("{n}.md"), &format!("./{}.md", n + 1));
        }
        assert_eq!(place.list("./0.md").existing.len(), MAX_DEPTH + 1);
        let many: String = (0..150).map(|n| format!("./x{n}.md ")).collect();
        place.write("more.md", &many.replace("./x", "./y"));
        let list = place.list(&format!("./more.md {many}"));
        assert!(list.more && list.missing.len() + list.existing.len() == MAX_FILES);
    }

    #[test]
    fn a_spec_outside_the_project_may_refer_to_its_neighbours() {
        let place = Place::new();
        let spec = place.outer.path().join("SPEC.md");
        fs::write(place.outer.path().join("part.md"), "").unwrap();
        let list = list(&Spec::parse(b"./part.md ./docs".to_vec(), None), &spec, &place.project());
        assert_eq!(list.existing.len(), 2);
        assert_eq!(list.existing[1], "docs");
    }
}
