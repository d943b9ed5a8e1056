//! The project: folder, repository, store, session, signals, spec.

use std::fs;
use std::path::Path;

use git2::{ErrorCode, Repository, RepositoryState};

use super::check::Check;
use crate::cli::project::Project;
use crate::config::UNFINISHED;
use crate::store;

/// Looks at everything in the project.
pub(super) fn project(project: &Project) -> Vec<Check> {
    let mut checks = vec![folder(project), repository(&project.paths.root), store(project)];
    checks.extend(session(project));
    checks.extend(signals(project));
    checks.push(spec(project));
    checks
}

fn folder(project: &Project) -> Check {
    let dot = &project.paths.dot;
    let (folder, detail) = if dot.is_dir() {
        (dot, format!("{} can be written", dot.display()))
    } else {
        let root = &project.paths.root;
        (root, format!("{} can be written; `longhaul run` makes it a project", root.display()))
    };
    match tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder) {
        Ok(_) => Check::ok("folder", detail),
        Err(error) => Check::fail("folder", format!("{} cannot be written: {error}", folder.display()))
            .advised("give it to the user who runs longhaul, or make room on its disk"),
    }
}

fn repository(root: &Path) -> Check {
    let found = match Repository::open(root) {
        Ok(found) => found,
        Err(error) if error.code() == ErrorCode::NotFound => {
            return Check::warn(
                "repository",
                "no git repository: there will be no checkpoints to go back to",
            )
            .advised("`git init`, or `longhaul run --init-git`");
        }
        Err(error) if error.code() == ErrorCode::Owner => {
            let way = format!("git config --global --add safe.directory '{}'", root.display());
            return Check::warn("repository", error.message()).advised(way);
        }
        Err(error) => {
            return Check::warn("repository", error.message())
                .advised("`git status` and `git fsck` tell more");
        }
    };
    if found.is_bare() {
        return Check::warn("repository", "it is bare: there are no files to work on")
            .advised("run longhaul in a clone or a worktree of it");
    }
    if found.path().join("index.lock").exists() {
        return Check::warn("repository", "index.lock is there: a git command runs, or was killed")
            .advised("when no git runs any more, remove .git/index.lock");
    }
    match found.state() {
        RepositoryState::Clean => Check::ok("repository", branch(&found)),
        state => Check::warn("repository", format!("in the middle of something: {state:?}"))
            .advised("finish or abort it first: agents are easily confused by it"),
    }
}

fn branch(repository: &Repository) -> String {
    match repository.head() {
        Ok(head) => match (head.is_branch(), head.shorthand()) {
            (true, Ok(name)) => format!("on branch {name}"),
            _ => "not on a branch".to_owned(),
        },
        Err(_) => "without a commit yet".to_owned(),
    }
}

fn store(project: &Project) -> Check {
    match store::inspect(&project.store_paths()) {
        Ok(found) => match (found.problem, found.rebuilt_from) {
            (None, _) if found.state.seq == 0 => Check::ok("store", "nothing in it yet"),
            (None, _) => Check::ok("store", format!("sound, up to event {}", found.state.seq)),
            (Some(why), Some(from)) => {
                Check::warn("store", format!("damaged: {why}; what is lost can be rebuilt from {from}"))
                    .advised("`longhaul run` keeps the bad file aside and goes on")
            }
            (Some(why), None) => Check::fail("store", format!("damaged: {why}; nothing could be rebuilt"))
                .advised("`longhaul run --fresh` starts a new session and keeps the bad file"),
        },
        Err(error) => Check::fail("store", format!("failed to {error}"))
            .advised("look at the rights of .longhaul/ and the health of its disk"),
    }
}

fn session(project: &Project) -> Option<Check> {
    let holder = project.holder()?;
    let since = holder.since.map_or_else(String::new, |since| {
        format!(" since {}", crate::cli::format::time(since, &project.zone, project.clock.now()))
    });
    Some(Check::ok("session", format!("one runs here{since}, process {}", holder.pid)))
}

fn signals(project: &Project) -> Option<Check> {
    let there = |path: &Path| fs::symlink_metadata(path).is_ok();
    if project.holder().is_some() {
        return None;
    }
    if there(&project.paths.stop) {
        let way = format!("remove {}", project.paths.stop.display());
        return Some(
            Check::warn("signals", "STOP is there: the next `longhaul run` stops at once").advised(way),
        );
    }
    let paused = there(&project.paths.pause);
    paused.then(|| {
        Check::warn("signals", "PAUSE is there: the next `longhaul run` begins paused")
            .advised("`longhaul resume`")
    })
}

fn spec(project: &Project) -> Check {
    let path = project.paths.root.join("SPEC.md");
    match fs::metadata(&path) {
        Ok(meta) if meta.len() > 0 => Check::ok("spec", "SPEC.md"),
        Ok(_) => Check::warn("spec", "SPEC.md is empty: work is looked for in the code")
            .advised("write down what is wanted"),
        Err(_) => {
            Check::ok("spec", "no SPEC.md: work is looked for in the code, unless `run` names another spec")
        }
    }
}
