//! Where the programs under test are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The `longhaul` program of this build.
pub fn longhaul() -> PathBuf {
    std::env::var_os("CARGO_BIN_EXE_longhaul")
        .map_or_else(|| profile_folder().join("longhaul"), PathBuf::from)
}

/// The fake agent of this build. `cargo test` makes it; `cargo bench` and `cargo test --test x` do not, so it is
/// made here when it is missing or older than its source.
pub fn fake_agent() -> &'static Path {
    static AGENT: OnceLock<PathBuf> = OnceLock::new();
    AGENT.get_or_init(|| {
        let agent = profile_folder().join("examples/fake_agent");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../helpers/fake_agent.rs");
        let made = |p: &Path| p.metadata().and_then(|m| m.modified()).ok();
        if made(&agent).is_none_or(|at| made(&source).is_some_and(|changed| changed > at)) {
            let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
            cargo.args(["build", "--quiet", "--example", "fake_agent", "--manifest-path"]);
            cargo.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml"));
            if profile_folder().ends_with("release") {
                cargo.arg("--release");
            }
            assert!(cargo.status().expect("cargo runs").success(), "the fake agent does not build");
        }
        agent
    })
}

/// `target/debug` or `target/release`: a test or bench lies in its `deps`.
fn profile_folder() -> PathBuf {
    let exe = std::env::current_exe().expect("the path of this program is known");
    exe.parent().and_then(Path::parent).expect("a test lies in target/PROFILE/deps").to_owned()
}
