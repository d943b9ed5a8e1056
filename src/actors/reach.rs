//! Asks servers whether they answer, when a call could not reach its own or an account was left for that.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::context::ProjectCtx;
use crate::domain::reach::{Reach, Reached};
use crate::providers::server::Server;

/// Whom the next call must not go to because nobody is there. Takes some seconds where nobody answers, and no time
/// at all where nobody has to be asked.
pub async fn reach(ctx: &Arc<ProjectCtx>, question: Reach<'_>) -> Reached {
    let to_ask = question.to_ask(ctx.now());
    if to_ask.is_empty() {
        return Reached::default();
    }
    let config = ctx.config();
    let mut asking = JoinSet::new();
    for name in to_ask {
        let Some(definition) = ctx.providers.definition(name) else { continue };
        let env = ctx.provider_env(&config, name);
        let Some(server) = Server::of(&definition, &env) else { continue };
        let name = name.clone();
        asking.spawn(async move { (name, server.answers(&env).await) });
    }
    let mut answers = BTreeMap::new();
    while let Some(asked) = asking.join_next().await {
        // Whose question was lost has not answered.
        answers.extend(asked.ok());
    }
    question.judge(&answers, config.backoff.cap, ctx.now())
}
