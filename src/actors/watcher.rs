//! TEMP
use ractor::{Actor, ActorProcessingErr, ActorRef};
use crate::messages::watcher::WatcherMsg;
pub struct WatcherActor;
impl Actor for WatcherActor { type Msg = WatcherMsg; type State = (); type Arguments = ();
    async fn pre_start(&self, _: ActorRef<WatcherMsg>, _: ()) -> Result<(), ActorProcessingErr> { Ok(()) } }
