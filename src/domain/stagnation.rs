//! Notices that nothing moves: iterations that finish one after another and leave the tree as it was.
//!
//! Only evidence counts, never names: three tasks with equal titles and three different trees are progress, and
//! three different titles over one tree are not.

use serde::{Deserialize, Serialize};

/// After how many unchanged iterations in a row something happens. 0 turns that step off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StagnationLimits {
    /// From this count on the prompt says so; the council is asked when it is reached.
    pub warn_after: u32,
    /// At this count the session pauses (reason `stagnated`).
    pub pause_after: u32,
}

/// The finished iterations of one lane since its tree last changed. Kept in the state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stagnation {
    /// Finished iterations in a row that left the tree as it was.
    unchanged: u32,
    /// Id of the tree after the last finished iteration (or before the first); any string that names content.
    tree: Option<String>,
    /// The level that the last iteration ended with.
    #[serde(default)]
    level: Level,
}

/// How stuck a lane is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The tree changes, or has not stood still for long.
    #[default]
    Moving,
    /// The next prompt says so.
    Warn,
    /// The session pauses until a person says how to go on.
    Pause,
}

/// What one finished iteration means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Finished iterations in a row without a changed tree.
    pub unchanged: u32,
    /// Where that puts the lane.
    pub level: Level,
    /// The level went up with this iteration: the moment for the `stagnation` event, which comes once a level.
    pub entered: bool,
}

// === impl StagnationLimits ===

impl Default for StagnationLimits {
    fn default() -> Self {
        StagnationLimits { warn_after: 5, pause_after: 10 }
    }
}

impl StagnationLimits {
    /// Where so many finished iterations in a row without a changed tree put a lane.
    pub fn level(self, unchanged: u32) -> Level {
        let reached = |limit: u32| limit > 0 && unchanged >= limit;
        if reached(self.pause_after) {
            Level::Pause
        } else if reached(self.warn_after) {
            Level::Warn
        } else {
            Level::Moving
        }
    }
}

// === impl Stagnation ===

impl Stagnation {
    /// Starts with the tree as it is before the first iteration. Without one the first iteration counts as a change.
    pub fn new(tree: Option<String>) -> Self {
        Stagnation { tree, ..Stagnation::default() }
    }

    /// Records a finished iteration that left `tree`. Cut and failed attempts are not finished iterations.
    pub fn finished(&mut self, tree: &str, limits: StagnationLimits) -> Progress {
        if self.tree.as_deref() == Some(tree) {
            self.unchanged = self.unchanged.saturating_add(1);
        } else {
            self.unchanged = 0;
            self.tree = Some(tree.to_owned());
        }
        let level = limits.level(self.unchanged);
        let entered = level > self.level;
        self.level = level;
        Progress { unchanged: self.unchanged, level, entered }
    }

    /// A person let the session go on: it gets the full count again.
    pub fn resumed(&mut self) {
        self.unchanged = 0;
        self.level = Level::Moving;
    }

    /// Finished iterations in a row without a changed tree.
    pub fn unchanged(&self) -> u32 {
        self.unchanged
    }

    /// The level that the last finished iteration ended with.
    pub fn level(&self) -> Level {
        self.level
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn play(trees: &[&str], limits: StagnationLimits) -> Vec<Progress> {
        let mut s = Stagnation::new(Some("t0".into()));
        trees.iter().map(|t| s.finished(t, limits)).collect()
    }

    #[test]
    fn warns_at_five_and_pauses_at_ten() {
        let seen = play(&["t0"; 12], StagnationLimits::default());
        let entered: Vec<(u32, Level)> =
            seen.iter().filter(|p| p.entered).map(|p| (p.unchanged, p.level)).collect();
        assert_eq!(entered, [(5, Level::Warn), (10, Level::Pause)]);
        assert_eq!(seen[3].level, Level::Moving);
        assert_eq!(seen[8].level, Level::Warn, "the prompt says so each time");
    }

    #[test]
    fn l01_equal_names_with_new_trees_are_progress() {
        let seen =
            play(&["t1", "t2", "t3", "t4", "t5", "t6"], StagnationLimits { warn_after: 1, pause_after: 2 });
        assert!(seen.iter().all(|p| p.level == Level::Moving && p.unchanged == 0));
    }

    #[test]
    fn a_changed_tree_starts_the_count_again_and_the_warning_can_come_again() {
        let limits = StagnationLimits { warn_after: 2, pause_after: 0 };
        let seen = play(&["t0", "t0", "t1", "t1", "t1"], limits);
        assert_eq!(seen.iter().map(|p| p.entered).collect::<Vec<_>>(), [false, true, false, false, true]);
    }

    #[test]
    fn without_a_known_tree_the_first_iteration_is_a_change() {
        let mut s = Stagnation::default();
        assert_eq!(s.finished("t", StagnationLimits { warn_after: 1, pause_after: 1 }).level, Level::Moving);
    }

    #[test]
    fn limits_that_change_during_the_run_count_at_the_next_iteration() {
        let mut s = Stagnation::new(Some("t".into()));
        for _ in 0..7 {
            s.finished("t", StagnationLimits { warn_after: 0, pause_after: 0 });
        }
        let now = s.finished("t", StagnationLimits { warn_after: 3, pause_after: 20 });
        assert_eq!((now.level, now.entered), (Level::Warn, true));
    }

    #[test]
    fn a_person_who_resumes_gives_it_the_full_count_again() {
        let mut s = Stagnation::new(Some("t".into()));
        for _ in 0..10 {
            s.finished("t", StagnationLimits::default());
        }
        assert_eq!(s.level(), Level::Pause);
        s.resumed();
        assert_eq!(s.finished("t", StagnationLimits::default()).unchanged, 1);
    }

    proptest! {
        #[test]
        fn the_count_is_the_run_of_equal_trees_at_the_end(trees in prop::collection::vec(0_u8..3, 0..60)) {
            let mut s = Stagnation::new(Some("0".into()));
            let mut all = vec![0_u8];
            let mut events = 0;
            for t in trees {
                let p = s.finished(&t.to_string(), StagnationLimits::default());
                all.push(t);
                let run = all.iter().rev().take_while(|x| **x == t).count() as u32 - 1;
                prop_assert_eq!(p.unchanged, run);
                prop_assert_eq!(p.level == Level::Pause, run >= 10);
                prop_assert_eq!(p.level >= Level::Warn, run >= 5);
                events += u32::from(p.entered);
                prop_assert_eq!(p.entered, run == 5 || run == 10);
            }
            prop_assert!(events as usize <= all.len() / 5);
        }

        #[test]
        fn state_survives_storage(trees in prop::collection::vec(0_u8..2, 0..20)) {
            let mut s = Stagnation::default();
            for t in trees {
                s.finished(&t.to_string(), StagnationLimits::default());
            }
            let stored = serde_json::to_string(&s).unwrap();
            prop_assert_eq!(serde_json::from_str::<Stagnation>(&stored).unwrap(), s);
        }
    }
}
