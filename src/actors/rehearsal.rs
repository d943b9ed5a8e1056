//! Plays a script in the place of a process: the same waits, ends and effects, without an account.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::sleep;

use super::provider::{Heard, Part, TreeEnd};
use crate::domain::outcome::Exit;
use crate::git::commit_all;
use crate::messages::provider::ProviderMsg;
use crate::providers::call::StartFailure;
use crate::providers::rehearsal::stage::{Commit, perform};
use crate::providers::rehearsal::{Performance, Play, Step};

/// A call to be played.
#[derive(Debug)]
pub struct Rehearsal {
    /// Its steps.
    pub play: Play,
    /// Where it works.
    pub folder: PathBuf,
}

/// Commits with libgit2: no hooks, no signing; a rehearsal is not the real thing.
struct Git;

impl Commit for Git {
    fn commit_all(&mut self, folder: &Path, message: &str) -> Result<(), String> {
        commit_all(folder, message).map_err(|error| error.to_string())
    }
}

/// Plays to the end, or until it is told to stop or the actor is gone.
pub async fn play(
    rehearsal: Rehearsal,
    mut orders: mpsc::Receiver<Duration>,
    folder: OwnedSemaphorePermit,
    provider: ActorRef<ProviderMsg>,
) {
    let Rehearsal { play, folder: place } = rehearsal;
    // Held by each step on its blocking thread too: a step that is under way ends before the folder is free.
    let folder = Arc::new(folder);
    let mut performance = Performance::default();
    let mut exit: Result<Exit, StartFailure> = Ok(Exit::Code(0));
    for step in play {
        let told = match &step {
            Step::Wait(time) => {
                tokio::select! {
                    () = sleep(*time) => false,
                    _ = orders.recv() => true,
                }
            }
            Step::Hang => {
                // An actor that died ends the call.
                let _ = provider.cast(ProviderMsg::Part(Box::new(Part::Hangs)));
                orders.recv().await;
                true
            }
            Step::Write { .. } | Step::Append { .. } | Step::Delete { .. } | Step::Commit(_) => {
                if let Err(error) = act(step.clone(), place.clone(), folder.clone()).await {
                    exit = Err(StartFailure::Other(error));
                    break;
                }
                !matches!(orders.try_recv(), Err(mpsc::error::TryRecvError::Empty))
            }
            _ => !matches!(orders.try_recv(), Err(mpsc::error::TryRecvError::Empty)),
        };
        if told {
            exit = Ok(Exit::Signal(libc::SIGTERM));
            break;
        }
        performance.take(&step);
        if let Step::Exit(code) = step {
            exit = Ok(Exit::Code(code));
        }
        if step.ends() {
            break;
        }
    }
    drop(folder);
    let ended = TreeEnd { exit, strays: 0 };
    // An actor that died has no use for it.
    let _ = provider.cast(ProviderMsg::Part(Box::new(Part::Output(Heard::Steps(performance)))));
    let _ = provider.cast(ProviderMsg::Part(Box::new(Part::Tree(ended))));
}

async fn act(step: Step, place: PathBuf, folder: Arc<OwnedSemaphorePermit>) -> Result<(), String> {
    let done = tokio::task::spawn_blocking(move || {
        let done = perform(&step, &place, &mut Git).map_err(|error| error.to_string());
        drop(folder);
        done
    });
    done.await.unwrap_or_else(|error| Err(error.to_string()))
}
