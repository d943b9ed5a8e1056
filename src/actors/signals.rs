//! TEMP
use std::sync::Arc;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use super::context::ProjectCtx;
use crate::domain::session::{Input, Signals, Stop};
use crate::domain::state::Reason;
use crate::messages::session::SessionMsg;
use crate::messages::signals::SignalsMsg;
#[derive(Debug)] pub struct Found; #[derive(Debug)] pub struct Queued;
pub struct SignalsActor;
impl Actor for SignalsActor {
    type Msg = SignalsMsg; type State = (Arc<ProjectCtx>, Option<Signals>); type Arguments = Arc<ProjectCtx>;
    async fn pre_start(&self, me: ActorRef<SignalsMsg>, ctx: Arc<ProjectCtx>) -> Result<Self::State, ActorProcessingErr> {
        ctx.slots.signals.fill(me.clone()); me.send_interval(std::time::Duration::from_millis(100), || SignalsMsg::Hint);
        Ok((ctx, None)) }
    async fn handle(&self, _: ActorRef<SignalsMsg>, m: SignalsMsg, s: &mut Self::State) -> Result<(), ActorProcessingErr> {
        let now = Signals { stop: s.0.paths.stop.exists().then(|| Stop { reason: Reason::Requested, detail: String::new(), now: false }), pause: s.0.paths.pause.exists().then(String::new), resume: false };
        match m { SignalsMsg::Repeat => s.1 = None, SignalsMsg::ConsumeStop(r) => { let _ = std::fs::remove_file(&s.0.paths.stop); let _ = r.send(()); return Ok(()) } _ => {} }
        if s.1.as_ref() != Some(&now) { s.1 = Some(now.clone()); s.0.slots.session.cast(SessionMsg::Input(Box::new(Input::Signals(now)))); }
        Ok(()) }
}
