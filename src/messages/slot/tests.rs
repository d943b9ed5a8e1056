use ractor::{Actor, ActorProcessingErr};
use tokio::time::sleep;

use super::*;

/// Answers with its number, or never, or dies of the question.
struct Oracle(u32);

#[derive(Debug)]
enum Ask {
    Number(RpcReplyPort<u32>),
}

impl Actor for Oracle {
    type Msg = Ask;
    type State = Vec<RpcReplyPort<u32>>;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Ask>, (): ()) -> Result<Self::State, ActorProcessingErr> {
        Ok(Vec::new())
    }

    async fn handle(
        &self,
        _: ActorRef<Ask>,
        Ask::Number(reply): Ask,
        kept: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match self.0 {
            0 => Err("it dies of the question".into()),
            // It keeps the question and says nothing.
            1 => {
                kept.push(reply);
                Ok(())
            }
            number => {
                drop(reply.send(number));
                Ok(())
            }
        }
    }
}

async fn oracle(number: u32) -> ActorRef<Ask> {
    Actor::spawn(None, Oracle(number), ()).await.unwrap().0
}

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn a_question_outlives_those_who_die_of_it() {
    let slot = Slot::default();
    let asked = {
        let slot = slot.clone();
        tokio::spawn(async move { slot.call("the oracle", LIMIT, Ask::Number).await })
    };
    sleep(Duration::from_secs(1)).await;
    slot.fill(oracle(0).await);
    sleep(Duration::from_secs(1)).await;
    slot.clear();
    sleep(Duration::from_secs(1)).await;
    slot.fill(oracle(7).await);
    assert_eq!(asked.await.unwrap(), Ok(7));
}

#[tokio::test(start_paused = true)]
async fn who_is_silent_is_waited_for_until_the_limit() {
    let slot = Slot::default();
    slot.fill(oracle(1).await);
    let began = Instant::now();
    let gone = slot.call("the oracle", LIMIT, Ask::Number).await.unwrap_err();
    assert_eq!(gone.to_string(), "the oracle did not answer within 30 s");
    assert_eq!(began.elapsed(), LIMIT);
}

#[tokio::test(start_paused = true)]
async fn where_nobody_ever_comes_the_limit_holds() {
    let slot = Slot::default();
    let began = Instant::now();
    assert!(slot.call("the oracle", LIMIT, Ask::Number).await.is_err());
    assert_eq!(began.elapsed(), LIMIT);
    assert!(!slot.is_live());
    slot.cast(Ask::Number(ractor::concurrency::oneshot().0.into()));
}

#[tokio::test(start_paused = true)]
async fn who_has_ended_is_not_live() {
    let slot = Slot::default();
    let actor = oracle(7).await;
    slot.fill(actor.clone());
    assert!(slot.is_live());
    actor.get_cell().stop_and_wait(None, None).await.unwrap();
    assert!(!slot.is_live());
}
