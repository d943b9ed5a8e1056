use std::sync::{Arc, Mutex};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::*;

/// A child that tells what becomes of it.
struct Child {
    name: &'static str,
    /// It does not come back from its handler.
    stuck: bool,
    diary: Diary,
}

type Diary = Arc<Mutex<Vec<String>>>;

/// Tells its end, however it comes.
struct Life(&'static str, Diary);

impl Drop for Life {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(format!("{} ends", self.0));
    }
}

impl Actor for Child {
    type Msg = &'static str;
    type State = Life;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<&'static str>, (): ()) -> Result<Life, ActorProcessingErr> {
        self.diary.lock().unwrap().push(format!("{} starts", self.name));
        Ok(Life(self.name, Arc::clone(&self.diary)))
    }

    async fn handle(
        &self,
        _: ActorRef<&'static str>,
        message: &'static str,
        _: &mut Life,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            "panic" => panic!("asked to crash"),
            "fail" => Err("it failed".into()),
            _ if self.stuck => {
                sleep(Duration::from_secs(1_000_000)).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Hands on the ends of its children.
struct Supervisor(mpsc::UnboundedSender<SupervisionEvent>);

impl Actor for Supervisor {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        _: &mut (),
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorStarted(_) => {}
            // What was the child's goes when its supervisor has heard of its end.
            SupervisionEvent::ActorTerminated(cell, state, reason) => {
                drop(state);
                drop(self.0.send(SupervisionEvent::ActorTerminated(cell, None, reason)));
            }
            event => drop(self.0.send(event)),
        }
        Ok(())
    }
}

struct Family {
    children: Children,
    supervisor: ActorCell,
    ends: mpsc::UnboundedReceiver<SupervisionEvent>,
    diary: Diary,
}

impl Family {
    /// `max` restarts a minute.
    async fn new(strategy: Strategy, max: u32) -> Self {
        let (tell, ends) = mpsc::unbounded_channel();
        let (supervisor, _) = Actor::spawn(None, Supervisor(tell), ()).await.unwrap();
        let diary = Diary::default();
        let specs = ["a", "b", "c"].map(|name| {
            let diary = Arc::clone(&diary);
            ChildSpec::new(name, Duration::from_secs(2), move |supervisor| {
                let child = Child { name, stuck: name == "b", diary: Arc::clone(&diary) };
                async move { Ok(Actor::spawn_linked(None, child, (), supervisor).await?.0.get_cell()) }
            })
        });
        let intensity = Intensity { max, within: Duration::from_secs(60) };
        let backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2));
        let rng = fastrand::Rng::with_seed(1);
        let mut children = Children::new(strategy, intensity, backoff, rng, specs.into());
        let supervisor = supervisor.get_cell();
        children.start_all(&supervisor).await.unwrap();
        Family { children, supervisor, ends, diary }
    }

    fn cell(&self, at: usize) -> ActorCell {
        self.children.children[at].cell.clone().unwrap()
    }

    fn tell(&self, at: usize, message: &'static str) {
        self.cell(at).send_message(message).unwrap();
    }

    async fn fallen(&mut self) -> Fallen {
        let event = self.ends.recv().await.unwrap();
        self.children.fallen(&event)
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.diary.lock().unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn each_way_to_die_asks_for_a_restart_with_its_cause() {
    let mut family = Family::new(Strategy::OneForOne, 3).await;
    for (number, (message, cause)) in
        [("panic", "asked to crash"), ("fail", "it failed"), ("", "killed")].into_iter().enumerate()
    {
        if message.is_empty() {
            family.cell(0).kill()
        } else {
            family.tell(0, message)
        }
        let Fallen::Restart { child: 0, after, cause: told, restarts } = family.fallen().await else {
            panic!("{message}")
        };
        assert!(told.contains(cause), "{told}");
        assert_eq!(restarts as usize, number + 1);
        assert!(after <= Duration::from_secs(2));
        family.children.restart(0, &family.supervisor).await.unwrap();
    }
    family.tell(0, "fail");
    let Fallen::GiveUp { name: "a", .. } = family.fallen().await else { panic!("it may not go on for ever") };
}

#[tokio::test(start_paused = true)]
async fn each_child_has_an_intensity_of_its_own_that_recovers() {
    let mut family = Family::new(Strategy::OneForOne, 2).await;
    for at in [0, 2, 0, 2] {
        family.tell(at, "fail");
        assert!(matches!(family.fallen().await, Fallen::Restart { child, .. } if child == at));
        family.children.restart(at, &family.supervisor).await.unwrap();
    }
    sleep(Duration::from_secs(61)).await;
    family.tell(0, "fail");
    assert!(matches!(family.fallen().await, Fallen::Restart { restarts: 1, .. }));
}

#[tokio::test(start_paused = true)]
async fn rest_for_one_restarts_those_after_it() {
    let mut family = Family::new(Strategy::RestForOne, 3).await;
    family.told();
    family.tell(1, "fail");
    family.fallen().await;
    family.children.restart(1, &family.supervisor).await.unwrap();
    assert_eq!(family.told(), ["b ends", "c ends", "b starts", "c starts"]);
    let event = family.ends.recv().await.unwrap();
    assert_eq!(family.children.fallen(&event), Fallen::Nothing, "it was stopped on purpose");
}

#[tokio::test(start_paused = true)]
async fn all_stop_in_reverse_also_one_that_hangs() {
    let mut family = Family::new(Strategy::OneForOne, 3).await;
    family.told();
    family.tell(1, "hang");
    let began = Instant::now();
    family.children.stop_all("the end").await;
    assert_eq!(family.told(), ["c ends", "b ends", "a ends"]);
    assert!(began.elapsed() <= Duration::from_secs(3), "it is killed after its time");
    while let Ok(event) = family.ends.try_recv() {
        assert_eq!(family.children.fallen(&event), Fallen::Nothing);
    }
    family.children.restart(0, &family.supervisor).await.unwrap();
    assert_eq!(family.told(), [""; 0], "nobody starts after the end");
}

#[tokio::test(start_paused = true)]
async fn who_is_down_is_started_for_the_end() {
    let mut family = Family::new(Strategy::OneForOne, 3).await;
    for at in [0, 2] {
        family.tell(at, "fail");
        family.fallen().await;
    }
    family.told();
    family.children.start_missing(&["a", "b"], &family.supervisor).await;
    assert_eq!(family.told(), ["a starts"], "b lives, nobody asked for c");
}
