//! What a snapshot takes, case by case; `random.rs` has the rest.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::git::testing::Sandbox;
use crate::git::{Durability, FolderWatch, Opening, Program, Repo, Route, Why};

fn assert_like_git(sandbox: &Sandbox, repo: &mut Repo) {
    let snapshot = repo.snapshot().unwrap();
    assert_eq!(snapshot.tree.to_string(), sandbox.oracle());
}

fn open_at(sandbox: &Sandbox, folder: &Path) -> Opening {
    Repo::open_with(folder, &Program::new(sandbox.environment(&[])).into(), Durability::Process)
}

#[test]
fn reads_changed_files_only_and_starts_no_program() {
    let sandbox = Sandbox::new();
    for n in 0..60 {
        sandbox.write(&format!("src/{}/{n}.rs", n % 7), format!("{n}"));
    }
    sandbox.commit_all();
    let mut repo = sandbox.open();
    repo.snapshot().unwrap();
    sandbox.write("src/3/3.rs", "x");
    let snapshot = repo.snapshot().unwrap();
    assert!(snapshot.changed && snapshot.files_read <= 2, "{snapshot:?}");
    assert_eq!(snapshot.tree.to_string(), sandbox.oracle());
    assert_eq!((repo.route(), repo.program_calls()), (&Route::Library, 0));
    let again = repo.snapshot().unwrap();
    assert!(!again.changed && again.tree == snapshot.tree);
}

#[test]
fn the_users_index_branch_and_files_are_never_touched() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "a");
    sandbox.commit_all();
    sandbox.write("staged", "s");
    sandbox.git(&["add", "staged"]);
    sandbox.write("staged", "and more");
    sandbox.write("untracked", "u");
    let state = || {
        let index = fs::read(sandbox.path().join(".git/index")).unwrap();
        let status = sandbox.git(&["status", "--porcelain=v2", "--branch"]);
        (index, status, sandbox.git(&["reflog", "--all"]), sandbox.git(&["config", "--list", "--local"]))
    };
    let before = state();
    let mut repo = sandbox.open();
    repo.snapshot().unwrap();
    assert_eq!(state(), before);
}

#[test]
fn every_kind_of_name_works() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let sandbox = Sandbox::new();
    let mut repo = sandbox.open();
    let names: [&[u8]; 7] = [
        "ü".as_bytes(),
        b"a b",
        b"\"q'",
        b"new\nline",
        "🎉".as_bytes(),
        "\u{200f}rtl".as_bytes(),
        b"\xff\xfe",
    ];
    for name in names {
        let folder = sandbox.path().join(OsStr::from_bytes(name));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(OsStr::from_bytes(name)), "x").unwrap();
    }
    let before = repo.snapshot().unwrap();
    assert_eq!(before.tree.to_string(), sandbox.oracle());
    fs::remove_dir_all(sandbox.path().join(OsStr::from_bytes(b"\xff\xfe"))).unwrap();
    let after = repo.snapshot().unwrap();
    let changes = repo.changes(before.tree, after.tree, 10).unwrap();
    assert_eq!(changes.list[0].path, OsStr::from_bytes(b"\xff\xfe/\xff\xfe"));
}

#[test]
fn links_are_taken_as_links_and_not_followed() {
    let sandbox = Sandbox::new();
    sandbox.write("real/file", "x");
    for (target, name) in [
        ("/", "root"),
        (".", "circle"),
        ("real", "folder"),
        ("nowhere", "broken"),
        ("l2", "l1"),
        ("l1", "l2"),
    ] {
        symlink(target, sandbox.path().join(name)).unwrap();
    }
    let mut repo = sandbox.open();
    assert_like_git(&sandbox, &mut repo);
    assert_eq!(sandbox.git(&["ls-files", "-o"]).lines().count(), 7);
}

#[test]
fn a_change_of_the_same_size_at_the_same_moment_is_seen() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "0");
    let mut repo = sandbox.open();
    let mut last = repo.snapshot().unwrap().tree;
    for n in 1..50 {
        // Written in place: the same inode and size, and often the same time stamp.
        fs::write(sandbox.path().join("a"), (n % 10).to_string()).unwrap();
        let snapshot = repo.snapshot().unwrap();
        assert_ne!(snapshot.tree, last, "write {n}");
        last = snapshot.tree;
    }
}

#[test]
fn a_restored_modification_time_hides_nothing() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "one");
    let mut repo = sandbox.open();
    let before = repo.snapshot().unwrap();
    let path = sandbox.path().join("a");
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "two").unwrap();
    fs::File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
    assert_ne!(repo.snapshot().unwrap().tree, before.tree);
}

#[test]
fn pipes_and_sockets_are_skipped_with_a_warning() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "a");
    sandbox.write("was-a-file", "kept");
    sandbox.commit_all();
    fs::remove_file(sandbox.path().join("was-a-file")).unwrap();
    let pipe = |name: &str| {
        let path = sandbox.path().join(name);
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    pipe("pipe");
    pipe("was-a-file");
    let _socket = std::os::unix::net::UnixListener::bind(sandbox.path().join("socket")).unwrap();
    let mut repo = sandbox.open();
    let snapshot = repo.snapshot().unwrap();
    assert_eq!(snapshot.tree.to_string(), sandbox.oracle());
    let mut names: Vec<_> =
        snapshot.warnings.list.iter().map(|w| (w.path.to_str().unwrap(), &w.why)).collect();
    names.sort_unstable_by_key(|(name, _)| *name);
    assert_eq!(names, [("pipe", &Why::Special), ("socket", &Why::Special), ("was-a-file", &Why::Special)]);
}

#[test]
fn what_cannot_be_read_is_left_as_it_was() {
    if rustix::process::geteuid().is_root() {
        // Permissions do not stop root.
        return;
    }
    let sandbox = Sandbox::new();
    for name in ["file", "folder/inside"] {
        sandbox.write(name, "committed");
    }
    sandbox.commit_all();
    sandbox.write("file", "changed");
    sandbox.write("new", "x");
    for name in ["file", "new", "folder"] {
        fs::set_permissions(sandbox.path().join(name), fs::Permissions::from_mode(0o0)).unwrap();
    }
    let mut repo = sandbox.open();
    let snapshot = repo.snapshot().unwrap();
    fs::set_permissions(sandbox.path().join("folder"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(snapshot.tree.to_string(), sandbox.git(&["rev-parse", "HEAD^{tree}"]));
    assert_eq!(snapshot.warnings.total, 3);
}

#[test]
fn our_own_folder_is_never_taken_unless_the_user_committed_it() {
    let sandbox = Sandbox::new();
    for name in [".longhaul/state.db", ".longhaul/config.toml", "sub/.longhaul/state.db", "a"] {
        sandbox.write(name, "x");
    }
    let mut repo = sandbox.open();
    let tree = repo.snapshot().unwrap().tree;
    let _ = repo.changes(tree, tree, 0).unwrap();
    assert_eq!(sandbox.git(&["ls-tree", "-r", "--name-only", &tree.to_string()]), "a");
    sandbox.git(&["add", "-f", ".longhaul/config.toml"]);
    let tree = repo.snapshot().unwrap().tree;
    let _ = repo.changes(tree, tree, 0).unwrap();
    assert_eq!(sandbox.git(&["ls-tree", "-r", "--name-only", &tree.to_string()]), ".longhaul/config.toml\na");
}

#[test]
fn submodules_and_nested_repositories_are_recorded_as_git_does() {
    let sandbox = Sandbox::new();
    sandbox.git(&["init", "-q", "with-commit"]);
    sandbox.write("with-commit/a", "a");
    sandbox.git_raw(&["-C", "with-commit", "commit", "-q", "--allow-empty", "-m", "n"]);
    sandbox.git(&["init", "-q", "empty"]);
    sandbox.write("empty/a", "a");
    fs::create_dir_all(sandbox.path().join("odd/.git")).unwrap();
    sandbox.write("odd/a", "a");
    let mut repo = sandbox.open();
    let snapshot = repo.snapshot().unwrap();
    assert_eq!(snapshot.tree.to_string(), sandbox.oracle());
    assert_eq!(snapshot.warnings.list.len(), 1);
    assert_eq!(snapshot.warnings.list[0].why, Why::NestedWithoutCommit);

    sandbox.commit_all_but("empty");
    assert_like_git(&sandbox, &mut repo);
    sandbox.git_raw(&["-C", "with-commit", "commit", "-q", "--allow-empty", "-m", "next"]);
    let snapshot = repo.snapshot().unwrap();
    assert!(snapshot.changed);
    assert_eq!(snapshot.tree.to_string(), sandbox.oracle());
    fs::remove_dir_all(sandbox.path().join("with-commit/.git")).unwrap();
    assert_like_git(&sandbox, &mut repo);
}

#[test]
fn pinned_files_stay_as_the_index_has_them() {
    let sandbox = Sandbox::new();
    for name in ["assumed", "skipped", "gone"] {
        sandbox.write(name, "committed");
    }
    sandbox.commit_all();
    sandbox.git(&["update-index", "--assume-unchanged", "assumed"]);
    sandbox.git(&["update-index", "--skip-worktree", "skipped", "gone"]);
    sandbox.write("assumed", "local");
    sandbox.write("skipped", "local");
    fs::remove_file(sandbox.path().join("gone")).unwrap();
    let mut repo = sandbox.open();
    let snapshot = repo.snapshot().unwrap();
    assert_eq!(snapshot.tree.to_string(), sandbox.git(&["rev-parse", "HEAD^{tree}"]));
    sandbox.git(&["update-index", "--no-skip-worktree", "skipped", "gone"]);
    assert_like_git(&sandbox, &mut repo);
}

#[test]
fn a_merge_in_progress_is_taken_as_the_files_are() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "base\n");
    sandbox.commit_all();
    sandbox.git(&["checkout", "-q", "-b", "other"]);
    sandbox.write("a", "theirs\n");
    sandbox.commit_all();
    sandbox.git(&["checkout", "-q", "main"]);
    sandbox.write("a", "ours\n");
    sandbox.commit_all();
    sandbox.git_with(&["merge", "-q", "other"], &[], &[1]);
    let mut repo = sandbox.open();
    assert_like_git(&sandbox, &mut repo);
}

#[test]
fn filters_are_run_by_git_and_counted() {
    let sandbox = Sandbox::new();
    sandbox.git(&["config", "filter.up.clean", "tr a-z A-Z"]);
    sandbox.write(".gitattributes", "*.bin filter=up\n");
    sandbox.write("x.bin", "hello");
    sandbox.write("y.txt", "hello");
    let mut repo = sandbox.open();
    let snapshot = repo.snapshot().unwrap();
    assert_eq!(snapshot.tree.to_string(), sandbox.oracle());
    assert_eq!(snapshot.program_calls, 1);
    sandbox.write("y.txt", "other");
    let snapshot = repo.snapshot().unwrap();
    // At most the racy file of before is converted once more.
    assert!(snapshot.program_calls <= 1);
    assert_eq!(repo.snapshot().unwrap().program_calls, 0);

    sandbox.git(&["config", "filter.up.clean", "false"]);
    sandbox.git(&["config", "filter.up.required", "true"]);
    sandbox.write("x.bin", "later");
    sandbox.write("z.bin", "new");
    let failed = repo.snapshot().unwrap();
    assert_eq!(failed.tree, snapshot.tree, "what was known before is kept");
    assert_eq!(failed.warnings.total, 2);
    assert!(matches!(failed.warnings.list[0].why, Why::NotConverted(_)));
}

#[test]
fn safecrlf_does_not_stop_a_checkpoint() {
    let sandbox = Sandbox::new();
    sandbox.git(&["config", "core.autocrlf", "true"]);
    sandbox.git(&["config", "core.safecrlf", "true"]);
    sandbox.write("mixed", "one\r\ntwo\n");
    let mut repo = sandbox.open();
    let snapshot = repo.snapshot().unwrap();
    assert_eq!(snapshot.warnings.total, 0);
    sandbox.git(&["config", "core.safecrlf", "false"]);
    assert_eq!(snapshot.tree.to_string(), sandbox.oracle());
}

#[test]
fn settings_that_change_while_it_is_open_count() {
    let sandbox = Sandbox::new();
    sandbox.write("a.log", "x\r\n");
    sandbox.write("script", "x");
    let mut repo = sandbox.open();
    assert_like_git(&sandbox, &mut repo);
    sandbox.git(&["config", "core.autocrlf", "input"]);
    assert_like_git(&sandbox, &mut repo);
    sandbox.write(".git/info/exclude", "*.log\n");
    assert_like_git(&sandbox, &mut repo);
    sandbox.git(&["config", "core.fileMode", "false"]);
    fs::set_permissions(sandbox.path().join("script"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_like_git(&sandbox, &mut repo);
    let excludes = sandbox.path().join(".git/mine");
    fs::write(&excludes, "script\n").unwrap();
    sandbox.git(&["config", "core.excludesFile", excludes.to_str().unwrap()]);
    assert_like_git(&sandbox, &mut repo);
    sandbox.git(&["config", "core.ignoreCase", "true"]);
    assert_like_git(&sandbox, &mut repo);
    assert!(matches!(repo.route(), Route::Program(why) if why.contains("core.ignoreCase")));
}

#[test]
fn a_50_mb_file_is_streamed() {
    let sandbox = Sandbox::new();
    let mut bytes = vec![b'x'; 50 << 20];
    bytes[49 << 20] = b'y';
    sandbox.write("large", &bytes);
    drop(bytes);
    let mut repo = sandbox.open();
    assert_like_git(&sandbox, &mut repo);
}

#[test]
fn the_git_program_does_what_libgit2_cannot() {
    for (arguments, after, why) in [
        (&["init", "-q", "--object-format=sha256"][..], &[][..], "sha256"),
        (&["init", "-q", "--ref-format=reftable"], &[], "refstorage"),
        (&["init", "-q"], &["update-index", "--split-index"], "index"),
        (&["init", "-q"], &["sparse-checkout", "set", "--sparse-index", "sub"], "sparse"),
    ] {
        let sandbox = Sandbox::without_repository();
        sandbox.git(arguments);
        for name in ["a", "sub/b", ".longhaul/state.db"] {
            sandbox.write(name, name);
        }
        sandbox.write(".git/info/exclude", "/.longhaul/\n");
        sandbox.commit_all();
        if !after.is_empty() {
            sandbox.git(after);
        }
        let mut repo = sandbox.open();
        match repo.route() {
            Route::Program(reason) => assert!(reason.to_lowercase().contains(why), "{why}: {reason}"),
            Route::Library => panic!("{why}"),
        }
        sandbox.write("sub/new", "n");
        let snapshot = repo.snapshot().unwrap();
        assert_eq!(snapshot.tree.to_string(), sandbox.oracle(), "{why}");
        assert!(snapshot.program_calls > 0);
        // A file that is ignored from now on drops out.
        sandbox.write(".gitignore", "new\n");
        assert_eq!(repo.snapshot().unwrap().tree.to_string(), sandbox.oracle(), "{why}");
        assert_eq!(repo.head().unwrap().commit.unwrap().to_string(), sandbox.git(&["rev-parse", "HEAD"]));
    }
}

#[test]
fn no_repository_where_none_is_meant() {
    let plain = Sandbox::without_repository();
    assert!(matches!(open_at(&plain, &plain.path()), Opening::NoRepository));

    let sandbox = Sandbox::new();
    sandbox.write(".gitignore", "scratch/\n");
    sandbox.write("scratch/x", "x");
    sandbox.write("kept/x", "x");
    sandbox.commit_all();
    assert!(matches!(open_at(&sandbox, &sandbox.path().join("scratch")), Opening::NoRepository));
    match open_at(&sandbox, &sandbox.path().join("kept")) {
        Opening::Git(mut repo) => {
            assert_eq!(repo.folder(), Path::new("kept"));
            // The whole work tree, as a commit would be.
            assert_eq!(repo.snapshot().unwrap().tree.to_string(), sandbox.oracle());
        }
        other => panic!("{other:?}"),
    }
    sandbox.git(&["config", "status.showUntrackedFiles", "no"]);
    fs::create_dir(sandbox.path().join("new")).unwrap();
    assert!(matches!(open_at(&sandbox, &sandbox.path().join("new")), Opening::NoRepository));
    assert!(matches!(open_at(&sandbox, &sandbox.path().join("kept")), Opening::Git(_)));
}

#[test]
fn what_cannot_be_used_says_why_and_what_to_do() {
    let unusable = |opening: Opening| match opening {
        Opening::Unusable { reason, advice } => (reason, advice),
        other => panic!("{other:?}"),
    };
    let bare = Sandbox::without_repository();
    bare.git(&["init", "-q", "--bare"]);
    let (reason, advice) = unusable(open_at(&bare, &bare.path()));
    assert!(reason.contains("bare") && advice.contains("worktree"), "{reason} {advice}");

    let broken = Sandbox::without_repository();
    broken.write(".git", "gitdir: /nonexistent\n");
    let (reason, _) = unusable(open_at(&broken, &broken.path()));
    assert!(reason.contains("/nonexistent"), "{reason}");

    if rustix::process::geteuid().is_root() {
        let foreign = Sandbox::new();
        for name in ["", ".git"] {
            std::os::unix::fs::chown(foreign.path().join(name), Some(12_345), None).unwrap();
        }
        let (reason, advice) = unusable(open_at(&foreign, &foreign.path()));
        assert!(advice.contains("safe.directory"), "{reason} {advice}");
    }

    let sandbox = Sandbox::without_repository();
    sandbox.git(&["init", "-q", "--object-format=sha256"]);
    let nowhere = Program::new(sandbox.environment(&[("PATH", "/nonexistent")]));
    let (reason, advice) = unusable(Repo::open_with(&sandbox.path(), &nowhere.into(), Durability::Process));
    assert!(advice.contains("install git"), "{reason} {advice}");
}

#[test]
fn heads_of_every_kind() {
    let sandbox = Sandbox::new();
    let mut repo = sandbox.open();
    let head = repo.head().unwrap();
    assert_eq!((head.commit, head.branch.as_deref()), (None, Some("main")));
    let empty = repo.snapshot().unwrap();
    assert_eq!((empty.head, repo.is_clean(&empty).unwrap()), (None, false));
    sandbox.write("a", "a");
    sandbox.commit_all();
    let snapshot = repo.snapshot().unwrap();
    assert!(repo.is_clean(&snapshot).unwrap());
    sandbox.git(&["checkout", "-q", "--detach"]);
    let head = repo.head().unwrap();
    assert_eq!((head.commit, head.branch), (snapshot.head, None));
    sandbox.write("b", "b");
    let dirty = repo.snapshot().unwrap();
    assert!(!repo.is_clean(&dirty).unwrap());
}

#[test]
fn a_linked_work_tree_is_a_project_of_its_own() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "a");
    sandbox.commit_all();
    let linked = sandbox.path().join(".longhaul/worktrees/lane-1");
    sandbox.git(&["worktree", "add", "-q", "-b", "lane", linked.to_str().unwrap()]);
    fs::write(linked.join("b"), "b").unwrap();
    let Opening::Git(mut repo) = open_at(&sandbox, &linked) else { panic!() };
    let before = repo.tree_of(repo.head().unwrap().commit.unwrap()).unwrap().unwrap();
    let snapshot = repo.snapshot().unwrap();
    let changes = repo.changes(before, snapshot.tree, 10).unwrap();
    assert_eq!((changes.total, changes.list[0].kind.letter()), (1, 'A'));
    assert!(repo.exclude_own_folder().unwrap());
    assert_eq!(
        fs::read_to_string(sandbox.path().join(".git/info/exclude")).unwrap().lines().last(),
        Some("/.longhaul/")
    );
}

#[test]
fn a_repository_made_anew_is_noticed() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "a");
    let mut repo = sandbox.open();
    repo.snapshot().unwrap();
    fs::remove_dir_all(sandbox.path().join(".git")).unwrap();
    sandbox.git(&["init", "-q"]);
    assert!(matches!(repo.snapshot(), Err(crate::git::GitError::Moved(_))));
    assert_like_git(&sandbox, &mut sandbox.open());
}

#[test]
fn a_walk_that_fails_half_way_leaves_nothing_wrong() {
    let sandbox = Sandbox::new();
    for n in 0..20 {
        sandbox.write(&format!("d{n}/e/f"), "x");
    }
    sandbox.commit_all();
    let mut repo = sandbox.open();
    repo.snapshot().unwrap();
    for n in 0..20 {
        sandbox.write(&format!("d{n}/e/f"), "y");
    }
    // Too large to be held back, and there is no place for it.
    sandbox.write("d7/large", vec![b'x'; 1 << 20]);
    let objects = sandbox.path().join(".git/objects");
    fs::rename(&objects, objects.with_extension("away")).unwrap();
    assert!(repo.snapshot().is_err());
    fs::rename(objects.with_extension("away"), &objects).unwrap();
    assert_like_git(&sandbox, &mut repo);
}

#[test]
fn our_folder_in_the_git_directory_may_be_lost_at_any_time() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "a");
    let mut repo = sandbox.open();
    for content in ["b", "c"] {
        fs::remove_dir_all(sandbox.path().join(".git/longhaul")).unwrap();
        sandbox.write("a", content);
        assert_like_git(&sandbox, &mut repo);
    }
}

#[test]
fn a_work_tree_of_a_bare_repository_works() {
    let sandbox = Sandbox::new();
    sandbox.commit_all();
    let bare = sandbox.path().join("bare.git");
    sandbox.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    sandbox.git_raw(&["-C", bare.to_str().unwrap(), "worktree", "add", "-q", "../tree"]);
    let tree = sandbox.path().join("tree");
    fs::write(tree.join("a"), "a").unwrap();
    let Opening::Git(mut repo) = open_at(&sandbox, &tree) else { panic!() };
    assert_eq!(repo.route(), &Route::Library);
    let snapshot = repo.snapshot().unwrap();
    let empty = repo.tree_of(snapshot.head.unwrap()).unwrap().unwrap();
    assert_eq!(repo.changes(empty, snapshot.tree, 5).unwrap().total, 1);
}

#[test]
fn a_repository_can_be_handed_to_another_thread() {
    fn assert_send<T: Send>() {}
    assert_send::<Repo>();
    assert_send::<FolderWatch>();
}

#[test]
fn files_come_and_go_while_they_are_read() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let sandbox = Sandbox::new();
    for n in 0..200 {
        sandbox.write(&format!("d{}/{n}", n % 5), n.to_string());
    }
    sandbox.commit_all();
    let mut repo = sandbox.open();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(3);
            while !stop.load(Ordering::Relaxed) {
                let folder = sandbox.path().join(format!("d{}", random.u8(0..5)));
                let path = folder.join(random.u8(0..200).to_string());
                let _ = match random.u8(0..6) {
                    0 => fs::remove_file(&path),
                    1 => fs::remove_dir_all(&folder),
                    2 => fs::remove_file(&path).and_then(|()| symlink("/", &path)),
                    _ => fs::create_dir_all(&folder)
                        .and_then(|()| fs::write(&path, vec![b'x'; random.usize(..9999)])),
                };
            }
        });
        for _ in 0..30 {
            repo.snapshot().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_like_git(&sandbox, &mut repo);
}

#[test]
fn a_folder_without_git_is_watched_too() {
    let sandbox = Sandbox::without_repository();
    let mut watch = FolderWatch::new(&sandbox.path());
    let before = watch.look().unwrap();
    sandbox.write("a", "a");
    assert_ne!(watch.look().unwrap().fingerprint, before.fingerprint);
}
