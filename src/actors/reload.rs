//! Settings that change while the session runs.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ractor::ActorRef;

use super::context::{InForce, ProjectCtx};
use super::survey::{limits, rules};
use crate::config::{Change, ConfigError, Files, Liveness, Loaded, Reloader, Reread, Sources, resolve};
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
        let in_force = ctx.in_force.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sources = Sources { overrides: in_force.overrides, ..ctx.sources.clone() };
        let reloader = Reloader::new(sources, in_force.files, in_force.settings);
        Reload { reloader, reading: false, again: false }
    }

    /// The files may have changed.
    pub fn hint(&mut self, ctx: &Arc<ProjectCtx>, session: &ActorRef<SessionMsg>) {
        if std::mem::replace(&mut self.reading, true) {
            self.again = true;
            return;
        }
        let (ctx, session) = (ctx.clone(), session.clone());
        tokio::task::spawn_blocking(move || {
            let files = ctx.read_settings();
            // A session that died reads them when it is back.
            let _ = session.cast(SessionMsg::Reread(Box::new(files)));
        });
    }

    /// What the files hold now: inputs for the state machine.
    pub fn take(&mut self, ctx: &Arc<ProjectCtx>, files: Result<Files, ConfigError>) -> Vec<Input> {
        self.reading = false;
        let again = std::mem::replace(&mut self.again, false);
        let mut overrides_changed = false;
        if let Ok(files) = &files {
            overrides_changed = self.outdated(ctx, files);
        }
        let read = files.as_ref().ok().cloned();
        let inputs = match self.reloader.judge(files) {
            Reread::Unchanged => Vec::new(),
            Reread::Unsettled => {
                if let Some(session) = ctx.slots.session.get() {
                    session.send_after(UNSETTLED, || SessionMsg::ConfigHint);
                }
                Vec::new()
            }
            Reread::Changed { loaded, changes } => {
                self.changed(ctx, *loaded, read.unwrap_or_default(), &changes, overrides_changed)
            }
            Reread::Invalid(error) => {
                let message = error.to_string();
                super::note(ctx, vec![ctx.draft(Body::ConfigInvalid { message })]);
                Vec::new()
            }
        };
        if again && let Some(session) = ctx.slots.session.get() {
            // A session that died reads them when it is back.
            let _ = session.cast(SessionMsg::ConfigHint);
        }
        inputs
    }

    /// An option of the command line holds until a person changes the same setting in a file: the newest word wins.
    fn outdated(&mut self, ctx: &ProjectCtx, files: &Files) -> bool {
        let in_force = ctx.in_force.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if in_force.overrides.is_empty() || in_force.files == *files {
            return false;
        }
        let bare = Sources { overrides: Vec::new(), ..ctx.sources.clone() };
        let (Ok(before), Ok(now)) = (resolve(&bare, &in_force.files), resolve(&bare, files)) else {
            return false;
        };
        let mut overrides = in_force.overrides.clone();
        overrides.retain(|old| {
            let value = |loaded: &Loaded| loaded.settings.get(&old.key).map(|setting| setting.value.clone());
            value(&before) == value(&now)
        });
        let changed = overrides.len() != in_force.overrides.len();
        if changed {
            let sources = Sources { overrides: overrides.clone(), ..ctx.sources.clone() };
            self.reloader = Reloader::new(sources, in_force.files, in_force.settings);
            ctx.in_force.lock().unwrap_or_else(PoisonError::into_inner).overrides = overrides;
        }
        changed
    }

    fn changed(
        &self,
        ctx: &Arc<ProjectCtx>,
        loaded: Loaded,
        files: Files,
        changes: &[Change],
        overrides_changed: bool,
    ) -> Vec<Input> {
        let overrides = {
            let mut in_force = ctx.in_force.lock().unwrap_or_else(PoisonError::into_inner);
            let overrides = std::mem::take(&mut in_force.overrides);
            *in_force = InForce { overrides: overrides.clone(), files, settings: loaded.settings };
            overrides
        };
        if changes.is_empty() && !overrides_changed {
            return Vec::new();
        }
        let before = ctx.config();
        let mut config = loaded.config;
        let mut inputs = Vec::new();
        if config.provider.name != before.provider.name && ctx.request.agent.is_none() {
            match super::preflight::usable(ctx, &config, &config.provider.name) {
                Ok(()) => inputs.push(Input::Switch(SwitchRequest { to: config.provider.name.clone() })),
                Err(reason) => {
                    let provider =
                        Some(std::mem::replace(&mut config.provider.name, before.provider.name.clone()));
                    let degraded = Body::CapabilityDegraded {
                        capability: "provider".to_owned(),
                        fail_closed: true,
                        reason,
                        provider,
                        model: None,
                        iteration: None,
                    };
                    super::note(ctx, vec![ctx.draft(degraded)]);
                }
            }
        }
        let mut said: Vec<Body> = changes.iter().map(said).collect();
        let limits_now = limits(&config);
        if overrides_changed || limits_now != limits(&before) {
            let overrides = overrides.into_iter().map(super::survey::stored).collect();
            said.push(Body::LimitsChanged { limits: limits_now, overrides });
        }
        let rules = Box::new(rules(ctx, &config));
        ctx.config.send_replace(Arc::new(config));
        ctx.slots.disk.cast(crate::messages::disk::DiskMsg::Limits(ctx.disk_limits()));
        inputs.push(Input::Settings { rules, changes: said });
        ctx.unsaved.lock().unwrap_or_else(PoisonError::into_inner).extend(inputs.iter().cloned());
        inputs
    }
}

fn said(change: &Change) -> Body {
    Body::ConfigChanged {
        key: change.key.clone(),
        old: change.old.clone(),
        new: change.new.clone(),
        live: change.applies == Liveness::Live,
    }
}
