//! The real CLIs that tests drive, pinned.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::World;
use crate::api::FakeApi;

/// A CLI from npm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
}

impl Peer {
    /// The name of its program.
    pub fn program(self) -> &'static str {
        match self {
            Peer::Claude => "claude",
            Peer::Codex => "codex",
            Peer::Gemini => "gemini",
        }
    }

    /// A model that it knows.
    pub fn model(self) -> &'static str {
        match self {
            Peer::Claude => "claude-sonnet-4-5",
            Peer::Codex => "gpt-5.1-codex",
            Peer::Gemini => "gemini-2.5-pro",
        }
    }

    fn package(self) -> (&'static str, &'static str) {
        match self {
            Peer::Claude => ("@anthropic-ai/claude-code", "2.1.332"),
            Peer::Codex => ("@openai/codex", "0.171.0"),
            Peer::Gemini => ("@google/gemini-cli", "0.61.0"),
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

    /// Puts the CLI on the world's `PATH`.
    pub fn installs(self, world: &World, program: &Path) {
        std::os::unix::fs::symlink(program, world.home().join("bin").join(self.program()))
            .expect("a link to the CLI");
    }

    /// Gives the world what the CLI needs to find the API, its own retries cut to none.
    pub fn connects(self, world: &mut World, api: &FakeApi) {
        // What a model costs is a user's to say where the CLI tells tokens alone.
        let price =
            format!("[prices.\"{}\"]\ninput = 1.25\noutput = 10.0\ncache_read = 0.125\n", self.model());
        match self {
            Peer::Claude => {
                world.set("ANTHROPIC_BASE_URL", api.url());
                world.set("ANTHROPIC_API_KEY", "sk-ant-loopback-0000000000");
                world.set("CLAUDE_CONFIG_DIR", world.home().join(".claude"));
                world.set("CLAUDE_CODE_MAX_RETRIES", "0");
                // Claude Code refuses to work without asking when it is root, unless it is told of a sandbox.
                world.set("IS_SANDBOX", "1");
            }
            Peer::Codex => {
                let home = world.home().join(".codex");
                let config = format!(
                    "model = \"{}\"\nmodel_provider = \"fake\"\ncheck_for_update_on_startup = false\n\
                     [analytics]\nenabled = false\n[model_providers.fake]\nname = \"fake\"\n\
                     base_url = \"{}/v1\"\nenv_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\n\
                     request_max_retries = 0\nstream_max_retries = 0\n",
                    self.model(),
                    api.url()
                );
                write(&home.join("config.toml"), &config);
                world.write(".longhaul/providers/codex.toml", price);
                world.set("CODEX_HOME", &home);
                world.set("OPENAI_API_KEY", "sk-loopback-0000000000");
            }
            Peer::Gemini => {
                let settings = r#"{"general":{"enableAutoUpdate":false,"disableUpdateNag":true,"maxAttempts":1},
                    "privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false},
                    "security":{"auth":{"selectedType":"gemini-api-key"}}}"#;
                write(&world.home().join(".gemini/settings.json"), settings);
                world.write(".longhaul/providers/gemini.toml", price);
                world.set("GOOGLE_GEMINI_BASE_URL", api.url());
                world.set("GEMINI_API_KEY", "loopback-0000000000");
            }
        }
    }

    /// Whether this is the pinned version and runs here.
    fn runs(self, program: &Path) -> bool {
        let output = Command::new(program).arg("--version").output();
        output.is_ok_and(|o| {
            o.status.success() && String::from_utf8_lossy(&o.stdout).contains(self.package().1)
        })
    }
}

fn write(file: &Path, text: &str) {
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("the CLI's folder");
    std::fs::write(file, text).expect("the CLI's settings");
}

/// `LONGHAUL_PEERS`, else a folder in `target/`, which git does not see and a build does not clean.
fn peers_folder() -> PathBuf {
    std::env::var_os("LONGHAUL_PEERS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers"), PathBuf::from)
}
