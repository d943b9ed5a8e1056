use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use super::*;

fn project() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn write(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn count(root: &Path) -> usize {
    survey(root, Depth::Whole).source_files
}

#[test]
fn ec_007_an_empty_folder_has_nothing() {
    let dir = project();
    let found = survey(dir.path(), Depth::Class);
    assert_eq!(found, Survey { whole: true, ..Survey::default() });
    assert_eq!(found.facts(), ["no source files yet"]);
}

#[test]
fn languages_and_manifests_are_told() {
    let dir = project();
    for path in
        ["src/a.rs", "src/b.rs", "web/x.ts", "Cargo.toml", "README.md", "web/package.json", "Makefile"]
    {
        write(dir.path(), path, "");
    }
    let found = survey(dir.path(), Depth::Whole);
    assert_eq!(found.languages, [("Rust", 2), ("Make", 1), ("TypeScript", 1)]);
    assert_eq!(found.manifests, ["README.md", "Cargo.toml", "Makefile"]);
    assert_eq!(
        found.facts(),
        [
            "4 source files: Rust (2), Make (1), TypeScript (1)",
            "at the top level: README.md, Cargo.toml, Makefile",
        ]
    );
}

#[test]
fn ec_004_pictures_fonts_and_video_do_not_count() {
    let dir = project();
    for path in ["a.png", "b.svg", "c.woff2", "d.mp4", "e.ttf", "f.pdf", "g.so", "h.jpg", "i.webm", "j.rs"] {
        write(dir.path(), path, "");
    }
    assert_eq!(count(dir.path()), 1);
}

#[test]
fn ec_005_links_are_not_followed_and_not_counted() {
    let dir = project();
    let outside = project();
    write(outside.path(), "far.rs", "");
    write(dir.path(), "src/near.rs", "");
    symlink(outside.path(), dir.path().join("out")).unwrap();
    symlink(dir.path(), dir.path().join("src/circle")).unwrap();
    symlink(dir.path().join("src/near.rs"), dir.path().join("alias.rs")).unwrap();
    symlink("nowhere.rs", dir.path().join("broken.rs")).unwrap();
    let found = survey(dir.path(), Depth::Whole);
    assert_eq!((found.source_files, found.unreadable, found.whole), (1, 0, true));
}

#[test]
fn ec_006_git_and_our_own_state_are_never_walked() {
    let dir = project();
    for path in [
        ".git/hooks/a.py",
        ".longhaul/worktrees/1/b.rs",
        "sub/.git/c.rs",
        "node_modules/d/e.js",
        "target/f.rs",
        "other/target/g.rs",
    ] {
        write(dir.path(), path, "");
    }
    write(dir.path(), "target/CACHEDIR.TAG", "");
    assert_eq!(count(dir.path()), 1, "only the target that is no cache");
}

#[test]
fn ignored_files_do_not_count_with_or_without_a_repository() {
    let dir = project();
    write(dir.path(), ".gitignore", "/gen/\n*.tmp.py\n");
    for path in ["gen/a.py", "b.tmp.py", "c.py", ".hidden/d.py"] {
        write(dir.path(), path, "");
    }
    assert_eq!(count(dir.path()), 2);
    write(dir.path(), ".git/info/exclude", "c.py\n");
    assert_eq!(count(dir.path()), 1);
}

#[test]
fn ec_001_any_name_counts() {
    let dir = project();
    for name in ["é ñ.rs", "new\nline.rs", "quo\"te.rs", "\u{202E}rtl.rs", "😀.rs"] {
        fs::write(dir.path().join(name), "").unwrap();
    }
    let raw = PathBuf::from(std::ffi::OsString::from_vec(b"\xFF\xFEraw.rs".to_vec()));
    fs::write(dir.path().join(raw), "").unwrap();
    assert_eq!(count(dir.path()), 6);
}

#[test]
fn ec_003_counting_stops_when_the_class_is_certain() {
    let dir = project();
    for n in 0..200 {
        write(dir.path(), &format!("{n}.rs"), "");
    }
    let found = survey(dir.path(), Depth::Class);
    assert_eq!((found.source_files, found.whole), (51, false));
    assert!(found.facts()[0].starts_with("many source files"));
    let found = survey(dir.path(), Depth::Whole);
    assert_eq!((found.source_files, found.whole), (200, true));
}

#[test]
fn a_large_tree_is_counted_whole_by_several_threads() {
    let dir = project();
    for n in 0..40 {
        let folder = dir.path().join(format!("d{n}"));
        fs::create_dir(&folder).unwrap();
        for m in 0..100 {
            let extension = if m < 90 { "png" } else { "py" };
            fs::File::create(folder.join(format!("{m}.{extension}"))).unwrap();
        }
    }
    let found = survey(dir.path(), Depth::Whole);
    assert_eq!((found.source_files, found.whole), (400, true));
    assert_eq!(found.languages, [("Python", 400)]);
    let (counts, whole) = parallel(dir.path(), Depth::Class);
    assert!(!whole && counts.languages["Python"] > complexity::MANY_FILES);
}

#[test]
fn what_cannot_be_read_is_counted_and_does_not_stop_the_walk() {
    let dir = project();
    assert_eq!(survey(&dir.path().join("none"), Depth::Class).unreadable, 1);
    if rustix::process::geteuid().is_root() {
        // Root reads everything.
        return;
    }
    write(dir.path(), "closed/a.rs", "");
    write(dir.path(), "open/b.rs", "");
    fs::set_permissions(dir.path().join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let found = survey(dir.path(), Depth::Whole);
    fs::set_permissions(dir.path().join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!((found.source_files, found.unreadable), (1, 1));
    assert!(found.facts().contains(&"1 folders or files cannot be read".to_owned()));
}
