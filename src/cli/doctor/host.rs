//! The host: git, disks, memory, change notices, clock, limits.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::{Access, access, inotify};
use rustix::process::{Resource, getrlimit};

use super::check::Check;
use crate::cli::format;
use crate::cli::project::Project;
use crate::cli::status::disk_space;
use crate::config::{Config, Disk, UNFINISHED};
use crate::domain::status::DiskSpace;
use crate::intake::file_system::{FileSystem, file_system};
use crate::process::{CallSpec, run_capture};
use crate::providers::definition::Version;
use crate::providers::resolve::find_program;

/// How long a program may take to say its version.
pub(super) const VERSION_LIMIT: Duration = Duration::from_secs(10);

/// Less room than this many times the limit is worth a word: a night of work may need it.
const ROOM: u64 = 10;

/// Less memory than this, bytes, is too little for most agents.
const MEMORY: u64 = 500_000_000;

/// Fewer open files than this can run out under several calls.
const OPEN_FILES: u64 = 1024;

/// Before this the clock is wrong: certificates and reset times are.
const YEAR: i16 = 2025;

/// A file's time may differ from the clock by this much.
const SKEW: Duration = Duration::from_secs(5);

/// Looks at everything.
pub(super) fn all(project: &Project, config: &Config) -> Vec<Check> {
    let mut checks = vec![git(project)];
    checks.extend(disk_space(project).iter().map(|space| disk(space, &config.disk)));
    checks.push(temporary(project));
    checks.push(notices(project));
    checks.push(memory());
    checks.push(open_files());
    checks.push(clock(project));
    checks.push(cgroup());
    checks.push(locale(project));
    checks
}

fn git(project: &Project) -> Check {
    let path = project.environment.get("PATH");
    let missing = "install git: checkpoints of folders with filters or submodules need the program";
    let program = match find_program("git", path, &project.paths.root) {
        Ok(program) => program,
        Err(failure) => return Check::warn("git", failure.to_string()).advised(missing),
    };
    let spec = CallSpec {
        argv: vec![program.clone().into_os_string(), "--version".into()],
        env: project.env().into_iter().collect(),
        cwd: project.paths.root.clone(),
        stdin: Vec::new(),
    };
    let said = match run_capture(&spec, VERSION_LIMIT) {
        Ok(said) => String::from_utf8_lossy(&said.stdout).into_owned(),
        Err(error) => return Check::warn("git", format!("failed to {error}")).advised(missing),
    };
    match said.split_whitespace().find_map(Version::parse) {
        Some(version) => Check::ok("git", format!("{version} at {}", program.display())),
        None => {
            Check::warn("git", format!("{} does not tell its version", program.display())).advised(missing)
        }
    }
}

fn disk(space: &DiskSpace, limits: &Disk) -> Check {
    let name = format!("disk {}", space.path);
    let inodes = space.free_inodes.map_or_else(String::new, |free| format!(", {free} inodes"));
    let detail = format!("{}{inodes} free", format::bytes(space.free_bytes));
    let advice = "remove what is not needed, or lower disk.min_free";
    let lacks = |times: u64| {
        space.free_bytes < limits.min_free.saturating_mul(times)
            || space.free_inodes.is_some_and(|free| free < limits.min_inodes.saturating_mul(times))
    };
    if lacks(1) {
        Check::fail(name, format!("{detail}: a session pauses at once")).advised(advice)
    } else if lacks(ROOM) {
        Check::warn(name, format!("{detail}: not much")).advised(advice)
    } else {
        Check::ok(name, detail)
    }
}

fn temporary(project: &Project) -> Check {
    let folder = project.environment.get("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    match tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&folder) {
        Ok(_) => Check::ok("temporary files", folder.display().to_string()),
        Err(error) => {
            let detail = format!("{} cannot be written: {error}", folder.display());
            Check::fail("temporary files", detail).advised("set TMPDIR to a folder that can: agents need one")
        }
    }
}

fn notices(project: &Project) -> Check {
    let name = "change notices";
    let polled = "signal files are looked for every 150 ms instead, which is as good";
    if let Ok(FileSystem::Shared(kind)) = file_system(&project.paths.root) {
        return Check::warn(name, format!("{kind} gives none")).advised(polled);
    }
    let limit = |file: &str| {
        let text = fs::read_to_string(Path::new("/proc/sys/fs/inotify").join(file)).unwrap_or_default();
        text.trim().parse::<u64>().ok()
    };
    let [instances, watches] = ["max_user_instances", "max_user_watches"]
        .map(|file| limit(file).map_or_else(|| "?".to_owned(), |limit| limit.to_string()));
    match inotify::init(inotify::CreateFlags::CLOEXEC) {
        Ok(_) => Check::ok(name, format!("inotify: {instances} instances and {watches} watches a user")),
        Err(error) => Check::warn(name, format!("no inotify instance is left of {instances}: {error}"))
            .advised(format!("{polled}; sysctl fs.inotify.max_user_instances raises the limit")),
    }
}

fn memory() -> Check {
    let mut system = match sysinfo::System::new() {
        Ok(system) => system,
        Err(error) => return Check::warn("memory", format!("cannot be read: {error}")),
    };
    system.refresh_memory();
    let container = system.cgroup_limits().filter(|limits| limits.total_memory < system.total_memory());
    let (total, free) = container.map_or_else(
        || (system.total_memory(), system.available_memory()),
        |limits| (limits.total_memory, limits.free_memory),
    );
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let detail =
        format!("{} of {} free, {}", format::bytes(free), format::bytes(total), format::count(cores, "core"));
    if free < MEMORY {
        return Check::warn("memory", detail)
            .advised("most agents need more; limits.max_rss ends calls that take too much");
    }
    Check::ok("memory", detail)
}

fn open_files() -> Check {
    let limit = getrlimit(Resource::Nofile).current;
    let shown = limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
    if limit.is_some_and(|limit| limit < OPEN_FILES) {
        return Check::warn("open files", shown).advised(format!("raise the limit: ulimit -n {OPEN_FILES}"));
    }
    Check::ok("open files", shown)
}

fn clock(project: &Project) -> Check {
    let now = project.clock.now();
    let local = now.to_zoned_datetime(project.zone.clone());
    let shown = local.strftime("%Y-%m-%d %H:%M:%S %:z").to_string();
    let advice = "set the clock, best by NTP: waits and certificates depend on it";
    if local.year() < YEAR {
        return Check::fail("clock", format!("it says {shown}")).advised(advice);
    }
    match file_time(project) {
        Some(time) if Duration::try_from(time.duration_since(now).abs()).is_ok_and(|skew| skew > SKEW) => {
            let detail =
                format!("it says {shown}, and the file system {}", format::time(time, &project.zone, now));
            Check::warn("clock", detail)
                .advised("the file server's clock and this host's differ; set both by NTP")
        }
        _ => Check::ok("clock", shown),
    }
}

/// The time that the file system gives to a new file.
fn file_time(project: &Project) -> Option<Timestamp> {
    let folder = if project.paths.dot.is_dir() { &project.paths.dot } else { &project.paths.root };
    let file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder).ok()?;
    let modified = file.as_file().metadata().ok()?.modified().ok()?;
    Timestamp::try_from(modified).ok()
}

fn cgroup() -> Check {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(path) = own.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Check::ok(
            "cgroup",
            "no version 2 here; calls are followed as process trees, which needs none",
        );
    };
    let folder = Path::new("/sys/fs/cgroup").join(path);
    let writable = access(&folder, Access::WRITE_OK).is_ok() && folder.join("cgroup.procs").exists();
    let can = if writable { "writable" } else { "not writable for us, and not needed" };
    Check::ok("cgroup", format!("version 2 at {}, {can}", folder.display()))
}

fn locale(project: &Project) -> Check {
    let get = |name: &str| project.environment.get(name).map(OsStr::to_string_lossy);
    let found = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(get);
    let utf8 = found.as_ref().is_some_and(|value| {
        let value = value.to_ascii_lowercase();
        value.contains("utf-8") || value.contains("utf8")
    });
    match found {
        Some(value) if utf8 => Check::ok("locale", value),
        found => {
            let detail =
                found.map_or_else(|| "none is set".to_owned(), |value| format!("{value} is not UTF-8"));
            Check::warn("locale", detail)
                .advised("export LANG=C.UTF-8, or agents may garble what is not ASCII")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict;
    use super::*;

    #[test]
    fn room_is_judged_by_the_limits() {
        let limits = crate::config::load(&Default::default()).unwrap().config.disk;
        let verdict = |free_bytes, free_inodes| {
            disk(&DiskSpace { path: "/".into(), free_bytes, free_inodes }, &limits).verdict
        };
        assert_eq!(verdict(99_000_000, None), Verdict::Fail);
        assert_eq!(verdict(900_000_000, None), Verdict::Warn);
        assert_eq!(verdict(1_000_000_000, None), Verdict::Ok);
        assert_eq!(verdict(1_000_000_000, Some(999)), Verdict::Fail);
        assert_eq!(verdict(1_000_000_000, Some(10_000)), Verdict::Ok);
    }
}
