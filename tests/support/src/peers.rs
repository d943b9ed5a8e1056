//! The real CLIs that tests drive, pinned.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A CLI from npm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
}

impl Peer {
    /// The name of its program.
    pub fn program(self) -> &'static str {
        match self {
            Peer::Claude => "claude",
            Peer::Codex => "codex",
        }
    }

    /// A model that it knows.
    pub fn model(self) -> &'static str {
        match self {
            Peer::Claude => "claude-sonnet-4-5",
            Peer::Codex => "gpt-5.1-codex",
        }
    }

    fn package(self) -> (&'static str, &'static str) {
        match self {
            Peer::Claude => ("@anthropic-ai/claude-code", "2.1.332"),
            Peer::Codex => ("@openai/codex", "0.171.0"),
        }
    }

    /// The CLI's program, installed if it has to be. None, with a notice, where it is neither there nor asked
    /// for; with `CI=true` or `LONGHAUL_TEST_PEERS=1` a CLI that cannot be had is a failure.
    pub fn find(self) -> Option<PathBuf> {
        let (package, version) = self.package();
        let folder = peers_folder().join(self.program());
        let program = folder.join("node_modules/.bin").join(self.program());
        if self.runs(&program) {
            return Some(program);
        }
        let set = |name: &str| std::env::var(name).is_ok_and(|v| v == "1" || v == "true");
        if !set("CI") && !set("LONGHAUL_TEST_PEERS") {
            eprintln!(
                "notice: skipped, {package}@{version} is not installed; LONGHAUL_TEST_PEERS=1 installs it"
            );
            return None;
        }
        std::fs::create_dir_all(&folder).expect("the folder of the CLIs");
        eprintln!("notice: installing {package}@{version} into {}", folder.display());
        let output = Command::new("npm")
            .args(["install", "--save-exact", "--no-audit", "--no-fund", "--prefix"])
            .arg(&folder)
            .arg(format!("{package}@{version}"))
            .output()
            .unwrap_or_else(|e| panic!("npm is needed for {package}: {e}"));
        assert!(
            output.status.success(),
            "npm install {package}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        // npm may be set to leave install scripts alone; this one puts the native program in place.
        let finish = folder.join("node_modules").join(package).join("install.cjs");
        if !self.runs(&program) && finish.exists() {
            let _ = Command::new("node").arg(finish).output();
        }
        // The first start of a program of 400 MB on a busy host may be refused for want of memory or time.
        crate::eventually(&format!("{} {version} runs after its installation", self.program()), || {
            self.runs(&program).then_some(())
        });
        Some(program)
    }

    /// Whether this is the pinned version and runs here.
    fn runs(self, program: &Path) -> bool {
        let output = Command::new(program).arg("--version").output();
        output.is_ok_and(|o| {
            o.status.success() && String::from_utf8_lossy(&o.stdout).contains(self.package().1)
        })
    }
}

/// `LONGHAUL_PEERS`, else a folder in `target/`, which git does not see and a build does not clean.
fn peers_folder() -> PathBuf {
    std::env::var_os("LONGHAUL_PEERS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers"), PathBuf::from)
}
