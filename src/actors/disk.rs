//! TEMP
use ractor::{Actor, ActorProcessingErr, ActorRef};
use crate::messages::disk::DiskMsg;
#[derive(Debug)] pub struct Seen;
pub struct DiskActor;
impl Actor for DiskActor { type Msg = DiskMsg; type State = (); type Arguments = ();
    async fn pre_start(&self, _: ActorRef<DiskMsg>, _: ()) -> Result<(), ActorProcessingErr> { Ok(()) }
    async fn handle(&self, _: ActorRef<DiskMsg>, m: DiskMsg, _: &mut ()) -> Result<(), ActorProcessingErr> { if let DiskMsg::LookNow(r) = m { let _ = r.send(()); } Ok(()) } }
