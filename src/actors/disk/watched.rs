//! The file systems of one project.

use std::path::PathBuf;
use std::time::Duration;

use ractor::ActorRef;
use tokio::time::Instant;

use crate::actors::blocking::away;
use crate::domain::disk::{DiskLimits, DiskReport, Shortage, Space};
use crate::domain::session::Input;
use crate::intake::file_system::FileSystem;
use crate::intake::space::{Place, has_room, measure, places};
use crate::messages::Slot;
use crate::messages::disk::DiskMsg;
use crate::messages::session::SessionMsg;

/// Every so many looks it is found out anew which file systems the paths are on.
const LOCATE_EVERY: u32 = 30;

/// A project whose Session has been gone for this long has ended.
const FORGET: Duration = Duration::from_secs(60);

/// What a project asks for.
#[derive(Debug, Clone)]
pub(super) struct Registration {
    pub(super) paths: Vec<PathBuf>,
    pub(super) limits: DiskLimits,
    pub(super) tell: Slot<SessionMsg>,
}

/// What is known of it.
pub(super) struct Watched {
    pub(super) id: u64,
    pub(super) registration: Registration,
    /// Its file systems, and what each of them lacks. Empty: to be found out.
    places: Vec<(Place, Option<Shortage>)>,
    /// A write failed for want of space: whether one succeeds now is to be tried.
    try_writing: bool,
    /// What the Session was told; none: nothing.
    told: Option<Option<(PathBuf, Shortage)>>,
    /// Since when a look is under way on a blocking thread.
    away_since: Option<Instant>,
    /// Another one was asked for meanwhile.
    again: bool,
    /// Somebody who may not know asked: what is low is told once more.
    repeat: bool,
    looks: u32,
    gone_since: Option<Instant>,
}

/// What a look on a blocking thread gave.
#[derive(Debug)]
pub struct Seen {
    pub(super) id: u64,
    /// The file systems, each with its measure, if there is one.
    places: Vec<(Place, Option<Space>)>,
    /// Writing was tried.
    tried: bool,
}

// === impl Watched ===

impl Watched {
    pub(super) fn new(id: u64, registration: Registration) -> Self {
        Watched {
            id,
            registration,
            places: Vec::new(),
            try_writing: false,
            told: None,
            away_since: None,
            again: false,
            repeat: false,
            looks: 0,
            gone_since: None,
        }
    }

    /// Somebody is there to be told, or was a moment ago.
    pub(super) fn is_wanted(&mut self, now: Instant) -> bool {
        if self.registration.tell.is_live() {
            self.gone_since = None;
        }
        self.registration.tell.is_live() || now < *self.gone_since.get_or_insert(now) + FORGET
    }

    pub(super) fn away_since(&self) -> Option<Instant> {
        self.away_since
    }

    /// A write of somebody failed: perhaps here.
    pub(super) fn write_failed(&mut self) {
        self.try_writing = true;
    }

    /// Looks: at once where that is quick, else away. `repeat`: what is low is told again.
    pub(super) fn look(&mut self, myself: &ActorRef<DiskMsg>, repeat: bool) {
        self.repeat |= repeat;
        if self.away_since.is_some() {
            // A look that began before it was asked for may have seen what was.
            self.again |= repeat || self.try_writing;
            return;
        }
        let quick = !self.places.is_empty()
            && !self.try_writing
            && !self.looks.is_multiple_of(LOCATE_EVERY)
            && self.places.iter().all(|(place, _)| place.kind == FileSystem::Local);
        self.looks = self.looks.wrapping_add(1);
        if quick {
            let spaces = self.places.iter().map(|(place, _)| measure(place).ok()).collect();
            return self.judge(spaces);
        }
        self.away_since = Some(Instant::now());
        let (id, paths, try_writing) = (self.id, self.registration.paths.clone(), self.try_writing);
        away(myself, move || DiskMsg::Looked(Box::new(Seen::look(id, &paths, try_writing))));
    }

    /// Takes in what a look on a blocking thread gave.
    pub(super) fn looked(&mut self, myself: &ActorRef<DiskMsg>, seen: Seen) {
        self.away_since = None;
        let lacked = |place: &Place| {
            let known = self.places.iter().find(|(known, _)| known.device == place.device);
            known.and_then(|(_, shortage)| *shortage)
        };
        let (places, spaces): (Vec<_>, Vec<_>) =
            seen.places.into_iter().map(|(place, space)| ((lacked(&place), place), space)).unzip();
        self.places = places.into_iter().map(|(shortage, place)| (place, shortage)).collect();
        if seen.tried {
            self.try_writing = spaces.iter().flatten().any(|space: &Space| space.write_failed);
        }
        self.judge(spaces);
        if std::mem::take(&mut self.again) {
            self.look(myself, false);
        }
    }

    /// What is free where it was low, else where there is least.
    fn free_bytes(&self, spaces: &[Option<Space>]) -> u64 {
        let was_low = self.told.iter().flatten().map(|(path, _)| path).next();
        let free = self.places.iter().zip(spaces).filter_map(|((place, _), space)| {
            let space = space.as_ref()?;
            Some((was_low.is_some_and(|path| *path != place.path), space.free_bytes))
        });
        free.min().map_or(0, |(_, free)| free)
    }

    /// Judges one measure per place, and tells the Session when that changes something. Where none could be taken, the
    /// last judgement holds.
    fn judge(&mut self, spaces: Vec<Option<Space>>) {
        let limits = self.registration.limits;
        let free_bytes = self.free_bytes(&spaces);
        let mut low = None;
        let mut unmeasured = None;
        for ((place, shortage), space) in self.places.iter_mut().zip(spaces) {
            if let Some(space) = space {
                *shortage = space.shortage(&limits, *shortage);
                if let Some(shortage) = *shortage {
                    low.get_or_insert_with(|| (place.path.clone(), shortage, space.low(&limits, shortage)));
                }
            } else if let Some(shortage) = *shortage {
                unmeasured.get_or_insert((place.path.clone(), shortage));
            }
        }
        if low.is_none() && unmeasured.is_some() {
            return;
        }
        let key = low.as_ref().map(|(path, shortage, _)| (path.clone(), *shortage));
        let repeat = std::mem::take(&mut self.repeat) && key.is_some();
        if repeat || self.told.as_ref() != Some(&key) {
            self.told = Some(key);
            let report = low.map_or(DiskReport::Room { free_bytes }, |(_, _, body)| DiskReport::Low(body));
            self.registration.tell.cast(SessionMsg::Input(Box::new(Input::Disk(report))));
        }
    }
}

// === impl Seen ===

impl Seen {
    fn look(id: u64, paths: &[PathBuf], try_writing: bool) -> Self {
        let places = places(paths)
            .into_iter()
            .map(|place| {
                let space = measure(&place).ok().map(|mut space| {
                    space.write_failed = try_writing && !has_room(&place);
                    space
                });
                (place, space)
            })
            .collect();
        Seen { id, places, tried: try_writing }
    }
}
