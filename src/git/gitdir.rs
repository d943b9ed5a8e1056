//! Git directories as git recognises them (gitrepository-layout(5)), read without opening a repository.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What stands at `.git` in a folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DotGit {
    /// Nothing that git would take for a repository.
    Nothing,
    /// The git directory: `.git` itself, or the one that the file `.git` names.
    Directory(PathBuf),
    /// A file `.git` that names no git directory; git refuses to work here.
    Dangling(PathBuf),
}

/// Files larger than this are no HEAD, no reference and no `.git` file.
const SMALL: u64 = 64 << 10;

/// Looks at `.git` in `folder`.
pub(super) fn dot_git(folder: &Path) -> DotGit {
    let path = folder.join(".git");
    match fs::metadata(&path) {
        Ok(meta) if meta.is_dir() && is_git_directory(&path) => DotGit::Directory(path),
        Ok(meta) if meta.is_file() => {
            let target = read_small(&path)
                .and_then(|text| text.strip_prefix(b"gitdir: ").map(|rest| folder.join(bytes_path(rest))));
            match target {
                Some(target) if is_git_directory(&target) => DotGit::Directory(target),
                Some(target) => DotGit::Dangling(target),
                None => DotGit::Dangling(path),
            }
        }
        _ => DotGit::Nothing,
    }
}

/// Whether `path` holds HEAD, objects and references.
pub(super) fn is_git_directory(path: &Path) -> bool {
    let common = common_directory(path);
    head_text(path).is_some_and(|head| target_of(&head).is_some() || is_hex(&head))
        && common.join("objects").is_dir()
        && common.join("refs").is_dir()
}

/// The commit that HEAD names in the repository whose work tree is `folder`. `None`: no commit yet, or its
/// references are kept in a way that is not plain files.
pub(super) fn head_commit(folder: &Path) -> Option<git2::Oid> {
    let DotGit::Directory(git_dir) = dot_git(folder) else { return None };
    let common = common_directory(&git_dir);
    let mut value = head_text(&git_dir)?;
    // A symbolic reference may name another; git follows five.
    for _ in 0..5 {
        let Some(name) = target_of(&value).map(<[u8]>::to_vec) else { break };
        let path = bytes_path(&name);
        value = [git_dir.join(path), common.join(path)]
            .iter()
            .find_map(|file| read_small(file))
            .or_else(|| packed_reference(&common, &name))?;
    }
    is_hex(&value).then(|| std::str::from_utf8(&value).ok().and_then(|hex| git2::Oid::from_str(hex).ok()))?
}

fn common_directory(git_dir: &Path) -> PathBuf {
    match read_small(&git_dir.join("commondir")) {
        Some(text) => git_dir.join(bytes_path(&text)),
        None => git_dir.to_owned(),
    }
}

/// HEAD's text; a symbolic link (as very old gits made it) reads as `ref: target`.
fn head_text(git_dir: &Path) -> Option<Vec<u8>> {
    let path = git_dir.join("HEAD");
    match fs::read_link(&path) {
        Ok(target) => Some([b"ref: ", target.as_os_str().as_bytes()].concat()),
        Err(_) => read_small(&path),
    }
}

fn target_of(text: &[u8]) -> Option<&[u8]> {
    let name = text.strip_prefix(b"ref:")?.trim_ascii_start();
    let harmless = name.starts_with(b"refs/") && !name.split(|&b| b == b'/').any(|part| part == b"..");
    harmless.then_some(name)
}

fn packed_reference(common: &Path, name: &[u8]) -> Option<Vec<u8>> {
    let text = fs::read(common.join("packed-refs")).ok()?;
    text.split(|&b| b == b'\n')
        .filter_map(|line| Some((line.get(..40)?, line.get(41..)?)))
        .find(|(_, here)| *here == name)
        .map(|(id, _)| id.to_vec())
}

fn is_hex(text: &[u8]) -> bool {
    matches!(text.len(), 40 | 64) && text.iter().all(u8::is_ascii_hexdigit)
}

/// A small regular file's content without white space at its end.
fn read_small(path: &Path) -> Option<Vec<u8>> {
    let meta = fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > SMALL {
        return None;
    }
    let mut text = fs::read(path).ok()?;
    text.truncate(text.trim_ascii_end().len());
    Some(text)
}

fn bytes_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::testing::Sandbox;

    #[test]
    fn reads_head_wherever_git_keeps_it() {
        let sandbox = Sandbox::new();
        let folder = sandbox.path();
        assert_eq!(head_commit(&folder), None, "no commit yet");
        sandbox.commit_all();
        let commit = git2::Oid::from_str(&sandbox.git(&["rev-parse", "HEAD"])).unwrap();
        assert_eq!(head_commit(&folder), Some(commit));
        sandbox.git(&["pack-refs", "--all"]);
        assert_eq!(head_commit(&folder), Some(commit), "packed");
        sandbox.git(&["worktree", "add", "-q", "-b", "other", "linked"]);
        assert_eq!(head_commit(&folder.join("linked")), Some(commit), "linked work tree");
        sandbox.git(&["checkout", "-q", "--detach"]);
        assert_eq!(head_commit(&folder), Some(commit), "detached");
    }

    #[test]
    fn tells_a_repository_from_a_folder_called_dot_git() {
        let sandbox = Sandbox::without_repository();
        let folder = sandbox.path();
        assert_eq!(dot_git(&folder), DotGit::Nothing);
        std::fs::create_dir(folder.join(".git")).unwrap();
        assert_eq!(dot_git(&folder), DotGit::Nothing);
        std::fs::remove_dir(folder.join(".git")).unwrap();
        sandbox.write(".git", "gitdir: /nonexistent\n");
        assert_eq!(dot_git(&folder), DotGit::Dangling("/nonexistent".into()));
    }
}
