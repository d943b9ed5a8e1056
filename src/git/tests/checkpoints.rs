//! Making, listing and removing checkpoints, and what a crash leaves.

use std::fs;
use std::path::Path;

use jiff::Timestamp;
use ulid::Ulid;

use crate::domain::ids::SessionId;
use crate::git::testing::Sandbox;
use crate::git::{Checkpoint, CheckpointMeta, Durability, GitError, Opening, Program, Repo};

fn meta(session: u128, iteration: u32) -> CheckpointMeta {
    CheckpointMeta {
        session: SessionId(Ulid::from(session)),
        iteration,
        state: serde_json::json!({ "iteration": iteration, "text": "a\nb" }),
        time: Timestamp::from_second(1_800_000_000 + i64::from(iteration)).unwrap(),
    }
}

fn checkpoint(repo: &mut Repo, session: u128, iteration: u32) -> Checkpoint {
    let snapshot = repo.snapshot().unwrap();
    repo.commit_checkpoint(&snapshot, &meta(session, iteration)).unwrap()
}

fn names(repo: &Repo) -> Vec<(u128, u32)> {
    repo.list().unwrap().iter().map(|d| (u128::from(d.meta.session.0), d.meta.iteration)).collect()
}

/// An opened repository for each of the two ways to work.
fn both() -> [(Sandbox, Repo); 2] {
    let library = Sandbox::new();
    let program = Sandbox::without_repository();
    program.git(&["init", "-q", "-b", "main", "--object-format=sha256"]);
    [library, program].map(|sandbox| {
        sandbox.write("a", "a");
        sandbox.commit_all();
        let repo = sandbox.open();
        (sandbox, repo)
    })
}

#[test]
fn a_checkpoint_is_a_sound_commit_on_its_own_reference() {
    for (sandbox, mut repo) in both() {
        sandbox.write("b", "uncommitted");
        let reflog = sandbox.git(&["reflog", "--all"]);
        let made = checkpoint(&mut repo, 1, 0);
        assert!(
            made.reference.starts_with("refs/longhaul/checkpoints/") && made.reference.ends_with("/000000")
        );
        assert_eq!(sandbox.git(&["rev-parse", &made.reference]), made.commit.to_string());
        let format = ["log", "-1", "--format=%an <%ae> %ct %P", &made.reference];
        let head = sandbox.git(&["rev-parse", "HEAD"]);
        assert_eq!(sandbox.git(&format), format!("Longhaul <longhaul@localhost> 1800000000 {head}"));
        assert_eq!(sandbox.git(&["diff", "--name-status", "HEAD", &made.reference]), "A\tb");
        assert_eq!(sandbox.git(&["fsck", "--strict"]), "");
        let details = repo.checkpoint(meta(1, 0).session, 0).unwrap().unwrap();
        assert_eq!((details.checkpoint, details.meta), (made, meta(1, 0)));
        assert_eq!(sandbox.git(&["status", "--porcelain"]), "?? b");
        assert_eq!(sandbox.git(&["reflog", "--all"]), reflog);
    }
}

#[test]
fn a_clean_tree_and_an_unborn_branch_get_checkpoints_too() {
    let sandbox = Sandbox::new();
    let mut repo = sandbox.open();
    checkpoint(&mut repo, 1, 0);
    checkpoint(&mut repo, 1, 1);
    assert_eq!(names(&repo), [(1, 0), (1, 1)]);
    assert_eq!(sandbox.git(&["fsck", "--strict"]).lines().filter(|l| l.contains("error")).count(), 0);
}

#[test]
fn making_one_again_is_fine_and_another_tree_replaces_it() {
    for (sandbox, mut repo) in both() {
        let first = checkpoint(&mut repo, 1, 3);
        assert_eq!(checkpoint(&mut sandbox.open(), 1, 3), first);
        sandbox.write("a", "the iteration ran again");
        let second = checkpoint(&mut repo, 1, 3);
        assert_ne!(second.commit, first.commit);
        assert_eq!(names(&repo), [(1, 3)]);
        assert!(repo.checkpoint_exists(meta(1, 3).session, 3).unwrap());
        assert!(!repo.checkpoint_exists(meta(1, 3).session, 4).unwrap());
    }
}

#[test]
fn the_oldest_go_first_over_all_sessions() {
    for (sandbox, mut repo) in both() {
        for (session, iteration) in [(1, 0), (1, 1), (2, 0)] {
            checkpoint(&mut repo, session, iteration);
        }
        assert_eq!(repo.retain(50).unwrap(), 0);
        checkpoint(&mut repo, 2, 1);
        assert_eq!(repo.retain(2).unwrap(), 2);
        assert_eq!(names(&repo), [(2, 0), (2, 1)]);
        // A reference that was removed by hand does not stop it.
        let list = repo.list().unwrap();
        sandbox.git(&["update-ref", "-d", &list[0].checkpoint.reference]);
        checkpoint(&mut repo, 3, 0);
        repo.retain(1).unwrap();
        assert_eq!(names(&repo), [(3, 0)]);
        assert_eq!(repo.retain(0).unwrap(), 0, "the newest one stays");
    }
}

#[test]
fn projects_that_share_a_repository_keep_their_own() {
    let sandbox = Sandbox::new();
    sandbox.write("one/x", "x");
    sandbox.write("two/x", "x");
    sandbox.commit_all();
    let open = |folder: &str| {
        let program = Program::new(sandbox.environment(&[]));
        match Repo::open_with(&sandbox.path().join(folder), &program.into(), Durability::Process) {
            Opening::Git(repo) => repo,
            other => panic!("{other:?}"),
        }
    };
    let (mut one, mut two) = (open("one"), open("two"));
    for n in 0..3 {
        checkpoint(&mut one, 1, n);
        checkpoint(&mut two, 2, n);
    }
    assert_eq!(one.retain(1).unwrap(), 2);
    assert_eq!((names(&one), names(&two)), (vec![(1, 2)], vec![(2, 0), (2, 1), (2, 2)]));
}

#[test]
fn nothing_half_made_is_listed() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "a");
    let mut repo = sandbox.open();
    let made = checkpoint(&mut repo, 1, 1);
    let folder = sandbox.path().join(".git").join(Path::new(&made.reference).parent().unwrap());
    // A power cut can leave an empty reference; a kill leaves a lock.
    fs::write(folder.join("000002"), "").unwrap();
    fs::write(folder.join("000003.lock"), "").unwrap();
    // A reference to a commit that is not there.
    fs::write(folder.join("000004"), format!("{}\n", "1".repeat(40))).unwrap();
    // A commit of the user's.
    sandbox.commit_all();
    fs::write(folder.join("000005"), sandbox.git(&["rev-parse", "HEAD"]) + "\n").unwrap();
    assert_eq!(names(&repo), [(1, 1)]);
    assert_eq!(names(&sandbox.open()), [(1, 1)]);
    checkpoint(&mut repo, 1, 6);
    repo.retain(1).unwrap();
    assert_eq!(names(&repo), [(1, 6)]);
}

#[test]
fn a_checkpoint_of_a_newer_program_is_refused_and_left_alone() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "a");
    let mut repo = sandbox.open();
    let made = checkpoint(&mut repo, 1, 1);
    let message =
        sandbox.git(&["log", "-1", "--format=%B", &made.reference]).replace("Format: 1", "Format: 9");
    let tree = format!("{}^{{tree}}", made.reference);
    let newer = sandbox.git(&["commit-tree", &tree, "-m", &message]);
    sandbox.git(&["update-ref", &made.reference, &newer]);
    let session = meta(1, 1).session;
    assert!(matches!(repo.checkpoint(session, 1), Err(GitError::NewerFormat { found: 9, .. })));
    assert!(names(&repo).is_empty());
}

#[test]
fn a_lock_of_a_killed_process_does_not_stop_its_successor() {
    for (sandbox, mut repo) in both() {
        let made = checkpoint(&mut repo, 1, 1);
        let lock =
            |n: u32| sandbox.path().join(".git").join(&made.reference).with_file_name(format!("{n:06}.lock"));
        fs::write(lock(2), "").unwrap();
        checkpoint(&mut repo, 1, 2);
        assert_eq!(names(&repo), [(1, 1), (1, 2)]);
        assert!(!lock(2).exists());
        // What cannot be removed now is removed the next time, and does not keep the others.
        checkpoint(&mut repo, 1, 3);
        fs::write(lock(1), "").unwrap();
        assert_eq!(repo.retain(1).unwrap(), 1);
        assert_eq!(names(&repo), [(1, 1), (1, 3)]);
        fs::remove_file(lock(1)).unwrap();
        assert_eq!(repo.retain(1).unwrap(), 1);
        assert_eq!(names(&repo), [(1, 3)]);
    }
}

#[test]
fn leftovers_are_swept_when_they_are_old() {
    let sandbox = Sandbox::new();
    let mut repo = sandbox.open();
    let made = checkpoint(&mut repo, 1, 1);
    let git = sandbox.path().join(".git");
    let references = git.join(&made.reference).parent().unwrap().to_owned();
    let ours = ["longhaul/index.new.lock", "longhaul/convert-x/index", "objects/tmp_object_git2_x"];
    let others = ["objects/tmp_obj_x", "index.lock", "longhaul/loose"];
    for age in [200, 400] {
        let time = now() - std::time::Duration::from_secs(age);
        let mut paths: Vec<_> = ours.iter().chain(&others).map(|name| git.join(name)).collect();
        paths.push(references.join("000002.lock"));
        paths.push(references.join("000003"));
        for path in &paths {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
            fs::File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
        }
        let folder = git.join("longhaul/convert-x");
        fs::File::open(&folder).unwrap().set_modified(time).unwrap();
        let swept = repo.sweep().unwrap();
        assert_eq!(swept, if age > 300 { ours.len() + 2 } else { 0 }, "{age}");
        assert!(others.iter().all(|name| git.join(name).exists()));
        let _ = fs::remove_dir_all(folder);
    }
    assert_eq!(names(&repo), [(1, 1)]);
}

/// By the file system's clock, as the sweep uses it.
fn now() -> std::time::SystemTime {
    tempfile::tempfile().unwrap().metadata().unwrap().modified().unwrap()
}

#[test]
fn packing_keeps_everything_and_only_packs_our_own() {
    let sandbox = Sandbox::new();
    for n in 0..30 {
        sandbox.write(&format!("f{n}"), format!("{n}"));
        // Not of this moment: a file that is as new as the index is read again, and its blob would be ours as well.
        let file = fs::File::options().append(true).open(sandbox.path().join(format!("f{n}"))).unwrap();
        let modified = file.metadata().unwrap().modified().unwrap();
        file.set_modified(modified - std::time::Duration::from_secs(3600)).unwrap();
    }
    sandbox.commit_all();
    sandbox.write("dangling", "of the user");
    let dangling = sandbox.git(&["hash-object", "-w", "dangling"]);
    fs::remove_file(sandbox.path().join("dangling")).unwrap();
    let mut repo = sandbox.open();
    let loose = |sandbox: &Sandbox| {
        let text = sandbox.git(&["count-objects"]);
        text.split(' ').next().unwrap().parse::<u32>().unwrap()
    };
    let users = loose(&sandbox);
    let mut packed = None;
    for n in 0..501 {
        sandbox.write("f1", format!("change {n}"));
        checkpoint(&mut repo, 1, n);
        repo.retain(50).unwrap();
        if let Some(count) = repo.pack_if_due().unwrap() {
            assert!(packed.is_none());
            packed = Some((n, count));
            assert_eq!(loose(&sandbox), users);
        }
    }
    let (after, count) = packed.unwrap();
    assert_eq!(after, 499);
    assert!(count > 1400, "{count}");
    assert_eq!(names(&repo).len(), 50);
    assert_eq!(sandbox.git(&["cat-file", "-p", &dangling]), "of the user");
    assert!(!sandbox.git(&["fsck", "--strict", "--no-dangling"]).contains("missing"));
    for details in repo.list().unwrap() {
        sandbox.git(&["rev-list", "--objects", &details.checkpoint.reference]);
    }
}

#[test]
fn the_program_packs_loose_objects_too() {
    let [_, (sandbox, mut repo)] = both();
    fs::write(sandbox.path().join(".git/longhaul/unpacked"), ".".repeat(499)).unwrap();
    let made = checkpoint(&mut repo, 1, 1);
    assert_eq!(repo.pack_if_due().unwrap(), Some(0));
    assert!(sandbox.git(&["count-objects"]).starts_with("0 "), "{}", sandbox.git(&["count-objects"]));
    sandbox.git(&["rev-list", "--objects", &made.reference]);
    assert_eq!(repo.pack_if_due().unwrap(), None);
}

#[test]
fn objects_that_were_removed_behind_our_back_are_made_again() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "a");
    sandbox.commit_all();
    sandbox.write("deep/down/untracked", "u");
    let mut repo = sandbox.open();
    // Until no stat is racy any more: else the file would be read, and its blob written, again anyway.
    while repo.snapshot().unwrap().files_read > 0 {}
    let made = checkpoint(&mut repo, 1, 1);
    sandbox.git(&["update-ref", "-d", &made.reference]);
    sandbox.git(&["gc", "-q", "--prune=now"]);
    sandbox.write("a", "changed");
    let snapshot = repo.snapshot().unwrap();
    assert!(matches!(repo.commit_checkpoint(&snapshot, &meta(1, 2)), Err(GitError::ObjectsGone(_))));
    let made = checkpoint(&mut repo, 1, 2);
    sandbox.git(&["rev-list", "--objects", &made.reference]);
    assert_eq!(sandbox.git(&["show", &format!("{}:deep/down/untracked", made.reference)]), "u");
}

#[test]
fn the_private_index_saves_reading_after_a_restart_and_may_be_lost() {
    let sandbox = Sandbox::new();
    for n in 0..250 {
        sandbox.write(&format!("untracked/{n}"), n.to_string());
    }
    let mut repo = sandbox.open();
    let first = repo.snapshot().unwrap();
    assert_eq!(first.files_read, 250);
    repo.commit_checkpoint(&first, &meta(1, 1)).unwrap();
    let second = sandbox.open().snapshot().unwrap();
    assert!(second.tree == first.tree && second.files_read < 250, "{}", second.files_read);
    fs::remove_dir_all(sandbox.path().join(".git/longhaul")).unwrap();
    let third = sandbox.open().snapshot().unwrap();
    assert_eq!((third.tree, third.files_read), (first.tree, 250));
}

#[test]
fn durable_checkpoints_are_the_same() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "a");
    sandbox.commit_all();
    sandbox.write("b", "b\r\n");
    let plain = checkpoint(&mut sandbox.open(), 1, 1);
    let durable = checkpoint(&mut sandbox.open_with(&[], Durability::Power), 1, 1);
    assert_eq!(durable, plain);
    let value = sandbox.git_with(&["config", "--get-all", "core.fsyncObjectFiles"], &[], &[1]);
    assert!(value.is_empty(), "the user's configuration is not changed");
}
