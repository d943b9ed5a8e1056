//! How a notification leaves the host.

mod program;
mod webhook;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

use crate::config::Notify;
use crate::domain::backoff::Backoff;
use crate::domain::notification::Notification;
use crate::process::Keeper;
use crate::store::{Delivery, Letter, Post};

/// How long a receiver may take.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Tries before it is given up: some three hours.
const TRIES: u32 = 12;

/// Between two tries.
const BACKOFF: Backoff = Backoff {
    floor: Duration::from_secs(1),
    ..Backoff::new(Duration::from_secs(4), Duration::from_secs(1800))
};

/// The longest that a receiver's own wish is followed.
const LONGEST: Duration = Duration::from_secs(3600);

/// The channels that the settings name, and what they need.
#[derive(Debug, Clone)]
pub struct Channels {
    /// The settings.
    pub notify: Notify,
    /// The environment of programs.
    pub env: BTreeMap<OsString, OsString>,
    /// Their folder.
    pub cwd: PathBuf,
}

/// Why a notification has not arrived, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Failure {
    /// It certainly has not: try again, after this time if the receiver says one.
    Again(Option<Duration>, String),
    /// It certainly has not, and will not.
    Final(String),
    /// It may have.
    Unknown(String),
}

// === impl Channels ===

impl Channels {
    /// Each of them, with a digest of where it goes.
    pub fn posts(&self) -> Vec<Post> {
        let Notify { webhook, command, desktop, .. } = &self.notify;
        let webhook = webhook.iter().map(|address| post("webhook", address));
        let command = Some(command).filter(|words| !words.is_empty());
        let command = command.map(|words| post("command", &words.join("\0")));
        webhook.chain(command).chain(desktop.then(|| post("desktop", ""))).collect()
    }

    /// Sends it. Takes [`PATIENCE`] at most, and a moment. `keeper` starts programs.
    pub async fn deliver(
        &self,
        letter: &Letter,
        now: Timestamp,
        draw: &mut fastrand::Rng,
        keeper: Option<&Keeper>,
    ) -> Delivery {
        let Letter { notification, channel, tries } = letter;
        let failure = match self.send(channel, notification, now, keeper).await {
            Ok(()) => return Delivery::Sent,
            Err(failure) => failure,
        };
        match failure {
            Failure::Final(why) => Delivery::Failed(why),
            Failure::Unknown(why) => Delivery::Unknown(why),
            Failure::Again(_, why) if *tries >= TRIES => {
                Delivery::Failed(format!("{why}; given up after {tries} tries"))
            }
            Failure::Again(stated, why) => {
                let wait = BACKOFF.delay(tries.saturating_sub(1), stated.map(|wait| wait.min(LONGEST)), draw);
                let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
                Delivery::Again(now.saturating_add(wait).unwrap_or(Timestamp::MAX), why)
            }
        }
    }

    async fn send(
        &self,
        channel: &str,
        notification: &Notification,
        now: Timestamp,
        keeper: Option<&Keeper>,
    ) -> Result<(), Failure> {
        let Notify { webhook, secret, command, .. } = &self.notify;
        match (channel, webhook, keeper) {
            ("webhook", Some(address), _) => {
                webhook::post(address, secret.as_deref(), notification, now).await
            }
            ("command", _, Some(keeper)) if !command.is_empty() => {
                program::command(command, notification, &self.env, &self.cwd, keeper).await
            }
            ("desktop", _, Some(keeper)) => {
                program::desktop(notification, &self.env, &self.cwd, keeper).await
            }
            _ => Err(Failure::Final(format!("`{channel}` is not set any more"))),
        }
    }
}

fn post(channel: &'static str, address: &str) -> Post {
    let digest = Sha256::digest(address.as_bytes());
    let target = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Post { channel, target }
}
