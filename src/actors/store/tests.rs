use std::time::Duration;

use tokio::time::timeout;

use super::*;
use crate::actors::testing::project;
use crate::domain::event::Body;
use crate::messages::session::CommitFailed;

async fn store(ctx: &Arc<ProjectCtx>) -> ActorRef<StoreMsg> {
    std::fs::create_dir_all(&ctx.paths.dot).unwrap();
    let args = StoreArgs { ctx: ctx.clone(), db: None };
    let (store, _) = Actor::spawn(None, StoreActor, args).await.unwrap();
    ctx.slots.store.fill(store.clone());
    store
}

fn notice(ctx: &ProjectCtx, code: &str) -> Vec<Draft> {
    vec![ctx.draft(Body::Notice { code: code.to_owned(), message: String::new() })]
}

/// A commit that is not answered.
async fn is_refused(ctx: &ProjectCtx, session: u64, drafts: Vec<Draft>) {
    let commit = ctx.commit_as(Some(session), drafts);
    assert!(timeout(Duration::from_millis(200), commit).await.is_err(), "it was answered");
}

#[tokio::test]
async fn what_a_session_that_died_had_on_its_way_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let ctx = project(folder.path());
    store(&ctx).await;
    assert_eq!(ctx.take_over(), (1, false));
    ctx.commit_as(Some(1), notice(&ctx, "first")).await.unwrap();
    assert_eq!(ctx.take_over(), (2, true), "one that starts now is a restarted one");
    is_refused(&ctx, 1, notice(&ctx, "late")).await;
    ctx.commit(notice(&ctx, "nobody's")).await.unwrap();
    ctx.commit_as(Some(2), notice(&ctx, "second")).await.unwrap();
    assert_eq!(ctx.state().seq, 3);
}

#[tokio::test]
async fn a_session_that_never_committed_has_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    let ctx = project(folder.path());
    store(&ctx).await;
    ctx.take_over();
    ctx.commit(notice(&ctx, "a message")).await.unwrap();
    assert_eq!(ctx.take_over(), (2, false));
}

#[tokio::test]
async fn a_batch_that_is_sent_again_after_a_restart_is_stored_once() {
    let folder = tempfile::tempdir().unwrap();
    let ctx = project(folder.path());
    let first = store(&ctx).await;
    let drafts = notice(&ctx, "once");
    let stored = ctx.commit(drafts.clone()).await.unwrap();
    first.get_cell().kill();
    store(&ctx).await;
    let again = ctx.commit(drafts).await.unwrap();
    assert_eq!(stored.events, again.events);
    assert_eq!(ctx.state().seq, 1);
}

#[tokio::test]
async fn a_commit_waits_for_a_store_that_is_down() {
    let folder = tempfile::tempdir().unwrap();
    let ctx = project(folder.path());
    let commit = tokio::spawn({
        let (ctx, drafts) = (ctx.clone(), notice(&ctx, "patient"));
        async move { ctx.commit(drafts).await.map(|_| ()).map_err(|error: CommitFailed| format!("{error:?}")) }
    });
    tokio::task::yield_now().await;
    store(&ctx).await;
    assert_eq!(commit.await.unwrap(), Ok(()));
}
