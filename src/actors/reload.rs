//! Settings that change while the session runs.

use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;

use super::context::ProjectCtx;
use super::survey::{limits, rules};
use crate::config::{Change, ConfigError, Files, Liveness, Reloader, Reread};
use crate::domain::event::Body;
use crate::domain::session::{Input, SwitchRequest};
use crate::messages::session::SessionMsg;

/// A file that is caught while an editor writes it is looked at again after this time.
const UNSETTLED: Duration = Duration::from_millis(200);

/// The settings files, watched.
pub struct Reload {
    reloader: Reloader,
    reading: bool,
    again: bool,
}

// === impl Reload ===

impl Reload {
    /// Compares with what is in force now.
    pub fn new(ctx: &ProjectCtx) -> Self {
        Reload {
            reloader: Reloader::new(ctx.sources.clone(), ctx.files.clone(), ctx.settings.clone()),
            reading: false,
            again: false,
        }
    }

    /// The files may have changed.
    pub fn hint(&mut self, ctx: &Arc<ProjectCtx>, session: &ActorRef<SessionMsg>) {
        if std::mem::replace(&mut self.reading, true) {
            self.again = true;
            return;
        }
        let (sources, session) = (ctx.sources.clone(), session.clone());
        tokio::task::spawn_blocking(move || {
            let files = sources.read();
            // A session that died reads them when it is back.
            let _ = session.cast(SessionMsg::Reread(Box::new(files)));
        });
    }

    /// What the files hold now: inputs for the state machine.
    pub fn take(&mut self, ctx: &Arc<ProjectCtx>, files: Result<Files, ConfigError>) -> Vec<Input> {
        self.reading = false;
        let again = std::mem::replace(&mut self.again, false);
        let invalid = |error: &ConfigError| {
            let message = error.to_string();
            super::note(ctx, vec![ctx.draft(Body::ConfigInvalid { message })]);
        };
        let mut inputs = Vec::new();
        match self.reloader.judge(files) {
            Reread::Unchanged => {}
            Reread::Unsettled => {
                if let Some(session) = ctx.slots.session.get() {
                    session.send_after(UNSETTLED, || SessionMsg::ConfigHint);
                }
            }
            Reread::Changed { loaded, changes } => {
                inputs = self.changed(ctx, &loaded.config, &changes);
            }
            Reread::Invalid(error) => invalid(&error),
        }
        if again && let Some(session) = ctx.slots.session.get() {
            // A session that died reads them when it is back.
            let _ = session.cast(SessionMsg::ConfigHint);
        }
        inputs
    }

    fn changed(&self, ctx: &Arc<ProjectCtx>, config: &crate::config::Config, changes: &[Change]) -> Vec<Input> {
        if changes.is_empty() {
            return Vec::new();
        }
        let before = ctx.config();
        let mut config = config.clone();
        let mut inputs = Vec::new();
        if config.provider.name != before.provider.name && ctx.request.agent.is_none() {
            match super::preflight::usable(ctx, &config, &config.provider.name) {
                Ok(()) => inputs.push(Input::Switch(SwitchRequest { to: config.provider.name.clone() })),
                Err(reason) => {
                    let provider = Some(config.provider.name.clone());
                    config.provider.name = before.provider.name.clone();
                    super::note(ctx, vec![ctx.draft(Body::CapabilityDegraded {
                        capability: "provider".to_owned(),
                        fail_closed: true,
                        reason,
                        provider,
                        model: None,
                        iteration: None,
                    })]);
                }
            }
        }
        let bodies = changes.iter().map(|change| Body::ConfigChanged {
            key: change.key.clone(),
            old: change.old.clone(),
            new: change.new.clone(),
            live: change.applies == Liveness::Live,
        });
        let bodies = bodies.collect();
        let new_limits = limits(&config);
        let limits = (new_limits != limits(&before)).then_some(new_limits);
        let rules = Box::new(rules(ctx, &config));
        ctx.config.send_replace(Arc::new(config));
        inputs.push(Input::Settings { rules, limits, changes: bodies });
        inputs
    }
}
