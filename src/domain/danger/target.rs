//! Paths that must not be lost.

/// Folders right below `/` that a system cannot do without.
const SYSTEM: [&str; 21] = [
    "bin",
    "boot",
    "dev",
    "etc",
    "home",
    "lib",
    "lib32",
    "lib64",
    "proc",
    "root",
    "run",
    "sbin",
    "sys",
    "usr",
    "var",
    "Users",
    "System",
    "Library",
    "Applications",
    "Volumes",
    "private",
];

/// Beginnings of the names of devices that hold data, below `/dev/`.
const DEVICES: [&str; 14] = [
    "sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "rdisk", "mapper/", "dm-", "md", "root", "mem", "kmem",
];

/// `/`, the home folder, a folder of the system, or everything in one of them.
pub(super) fn is_system(path: &str) -> bool {
    let path = trim(path);
    if let Some(rest) = below_home(path) {
        return is_everything(&parts(rest));
    }
    let Some(rest) = path.strip_prefix('/') else { return false };
    let parts = parts(rest);
    match parts.split_first() {
        Some((first, below)) if SYSTEM.contains(first) => {
            is_everything(below) || (*first == "home" && below.len() == 1 && is_user(below.first()))
        }
        _ => is_everything(&parts),
    }
}

/// `/` or everything in it.
pub(super) fn is_root(path: &str) -> bool {
    trim(path).strip_prefix('/').is_some_and(|rest| is_everything(&parts(rest)))
}

/// A device that holds data, also a placeholder such as `/dev/sdX`.
pub(super) fn is_device(path: &str) -> bool {
    path.strip_prefix("/dev/").is_some_and(|name| DEVICES.iter().any(|device| name.starts_with(device)))
}

/// Takes off what a sentence leaves at the end of a path.
fn trim(path: &str) -> &str {
    path.trim_end_matches([',', ';', ':', '!', ')', ']', '"', '\''])
}

/// What follows the home folder in `path`.
fn below_home(path: &str) -> Option<&str> {
    if let Some(rest) = path.strip_prefix('~') {
        // `~` and `~name`, but not a backup file `~x.txt`.
        let user = rest.split('/').next().unwrap_or_default();
        let named = user.is_empty() || user == "." || user == "root" || user == "*";
        return named.then(|| rest.strip_prefix(user).filter(|_| user != "*").unwrap_or(rest));
    }
    if let Some(rest) = path.strip_prefix("$HOME") {
        return (!rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')).then_some(rest);
    }
    let rest = path.strip_prefix("${HOME")?;
    let (between, after) = rest.split_once('}')?;
    (between.is_empty() || between.starts_with(':')).then_some(after)
}

fn parts(path: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts
}

/// Nothing, or one pattern that matches everything.
fn is_everything(parts: &[&str]) -> bool {
    match parts {
        [] => true,
        [only] => only.starts_with(['{', '[']) || only.bytes().all(|b| matches!(b, b'*' | b'?' | b'.')),
        _ => false,
    }
}

fn is_user(part: Option<&&str>) -> bool {
    part.is_some_and(|p| matches!(*p, "$USER" | "${USER}" | "$LOGNAME" | "$(whoami)"))
}
