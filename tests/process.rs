//! Child processes through the real keeper: how they start, how they end, and that nothing of them stays.

#![expect(clippy::unwrap_used, reason = "a test that cannot set its scene fails")]

use std::path::Path;

use longhaul::domain::outcome::Exit;
use longhaul::process::{CallSpec, Keeper};

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");

fn keeper() -> Keeper {
    Keeper::start_with(Path::new(LONGHAUL), None).unwrap()
}

fn sh(script: &str) -> CallSpec {
    CallSpec {
        argv: ["/bin/sh", "-c", script].map(Into::into).to_vec(),
        env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        cwd: "/tmp".into(),
        stdin: Vec::new(),
    }
}

#[tokio::test]
async fn exits() {
    let k = keeper();
    for _ in 0..5 {
        let p = k.prepare().await.unwrap();
        let (out, call) = p.start(&sh("exit 3")).unwrap();
        let e = call.ended().await;
        assert_eq!(e.exit, Ok(Exit::Code(3)));
        drop(out);
    }
}
