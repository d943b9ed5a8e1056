//! CPU time, of one process and of everything that it starts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// A cgroup that sums up the CPU time of all that runs in it, also of what has ended and of what left its
/// parent.
#[derive(Debug)]
pub struct CpuMeter {
    group: PathBuf,
}

impl CpuMeter {
    /// A fresh meter; none, with a notice, where cgroups v2 cannot be made.
    pub fn new() -> Option<CpuMeter> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("longhaul-bench-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        for root in ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"] {
            let group = Path::new(root).join(&name);
            if Path::new(root).join("cgroup.procs").exists() && std::fs::create_dir(&group).is_ok() {
                return Some(CpuMeter { group });
            }
        }
        eprintln!("notice: CPU time is left out, cgroups v2 can be made by root alone");
        None
    }

    /// `command`, so that it runs in this group from its first instruction.
    pub fn metered(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg("echo $$ > \"$0\" && exec \"$@\"").arg(self.group.join("cgroup.procs"));
        shell.arg(command.get_program()).args(command.get_args()).env_clear();
        shell.envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
        if let Some(folder) = command.get_current_dir() {
            shell.current_dir(folder);
        }
        shell
    }

    /// CPU time so far, in milliseconds.
    pub fn used_ms(&self) -> f64 {
        let stat = std::fs::read_to_string(self.group.join("cpu.stat")).unwrap_or_default();
        let line = stat.lines().find_map(|l| l.strip_prefix("usage_usec ")).unwrap_or_default();
        line.parse::<f64>().unwrap_or_default() / 1000.0
    }
}

impl Drop for CpuMeter {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.group);
    }
}

/// CPU time of all threads of a living process, in nanoseconds.
pub fn cpu_ns(pid: i32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .filter_map(|t| std::fs::read_to_string(t.path().join("schedstat")).ok())
        .filter_map(|s| s.split_whitespace().next()?.parse::<u64>().ok())
        .sum()
}
