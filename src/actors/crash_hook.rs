//! Test builds only: actors die on demand in the real program.
//!
//! With `LONGHAUL_CRASH_FILE` set, each line that appears in that file names an actor, which then panics on its own
//! turn. The file is taken away when it has been read.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::context::ProjectCtx;
use crate::messages::accounts::AccountsMsg;
use crate::messages::disk::DiskMsg;
use crate::messages::gates::GatesMsg;
use crate::messages::journal::JournalMsg;
use crate::messages::notifier::NotifierMsg;
use crate::messages::provider::ProviderMsg;
use crate::messages::repo::RepoMsg;
use crate::messages::session::SessionMsg;
use crate::messages::signals::SignalsMsg;
use crate::messages::store::StoreMsg;
use crate::messages::watcher::WatcherMsg;

/// How often the file is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// Looks for the file as long as the program runs, if there is to be one.
pub async fn watch(ctx: Arc<ProjectCtx>) {
    let Some(file) = ctx.env.get(std::ffi::OsStr::new("LONGHAUL_CRASH_FILE")).map(PathBuf::from) else {
        return;
    };
    loop {
        tokio::time::sleep(LOOK).await;
        let Ok(names) = std::fs::read_to_string(&file) else { continue };
        let _ = std::fs::remove_file(&file);
        names.lines().for_each(|name| crash(&ctx, name.trim()));
    }
}

fn crash(ctx: &ProjectCtx, actor: &str) {
    let slots = &ctx.slots;
    match actor {
        "store" => slots.store.cast(StoreMsg::Crash),
        "journal" => slots.journal.cast(JournalMsg::Crash),
        "signals" => slots.signals.cast(SignalsMsg::Crash),
        "repo" => slots.repo.cast(RepoMsg::Crash),
        "gates" => slots.gates.cast(GatesMsg::Crash),
        "session" => slots.session.cast(SessionMsg::Crash),
        "lane" => slots.session.cast(SessionMsg::CrashLane),
        "provider" => {
            let session = slots.session.get().map(|session| session.get_cell());
            let lanes = session.iter().flat_map(|session| session.get_children());
            for call in lanes.flat_map(|lane| lane.get_children()) {
                // A call that has just ended is none.
                let _ = call.send_message(ProviderMsg::Crash);
            }
        }
        "accounts" => slots.accounts.cast(AccountsMsg::Crash),
        "disk" => slots.disk.cast(DiskMsg::Crash),
        "notifier" => slots.notifier.cast(NotifierMsg::Crash),
        "watcher" => slots.watcher.cast(WatcherMsg::Crash),
        _ => {}
    }
}
