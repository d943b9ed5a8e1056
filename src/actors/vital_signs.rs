//! Is the call alive? Judged by its output and by the work of its process tree: a silent compile is not a hang.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::process::{Activity, Call, TreeUsage};
use crate::providers::call::OurReason;

/// A tree that used this share of one core since the last sample is at work. A parked CLI uses about a hundredth, and
/// up to a thirtieth when it collects its garbage every few seconds, as Claude Code does; a working one a third.
const WORKING: f64 = 0.05;

/// Fewer failed requests than this are no row.
const RETRIES: u32 = 3;

/// Time limits of a call. None: no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Until its first output.
    pub first_output: Option<Duration>,
    /// Without output and without work.
    pub silence: Option<Duration>,
    /// In all.
    pub total: Option<Duration>,
    /// From its terminal result to its exit.
    pub linger: Option<Duration>,
    /// Resident memory of the whole tree, bytes.
    pub max_rss: Option<u64>,
    /// Tool calls.
    pub tool_calls: Option<u64>,
    /// From the first to the last of failed requests in a row that it makes again by itself.
    pub retrying: Option<Duration>,
    /// TERM to KILL, where we end it.
    pub grace: Duration,
}

/// What the reader of the call's output has seen in it.
#[derive(Debug, Default)]
pub struct Seen {
    /// The terminal result; not any more when the call has gone on after it.
    pub terminal: AtomicBool,
    /// Tool calls.
    pub tools: AtomicU64,
    /// It makes a failed request again, by itself; nothing else has come meanwhile.
    pub retries: Mutex<Option<Retries>>,
}

/// Failed requests in a row.
#[derive(Debug, Clone, Copy)]
pub struct Retries {
    first: Instant,
    last: Instant,
    count: u32,
}

/// What a look finds.
#[derive(Debug, Clone)]
pub enum Sign {
    /// It is well.
    Well,
    /// Silent for long: see whether it works.
    Sample(Arc<Call>),
    /// It is to be ended.
    End(OurReason, Duration),
}

/// The signs of one call.
pub struct VitalSigns {
    limits: Limits,
    activity: Arc<Activity>,
    seen: Arc<Seen>,
    terminal_since: Option<Instant>,
    started: Instant,
    call: Weak<Call>,
    sampling: bool,
    /// The last sample, and when the tree was last seen at work.
    last: Option<(Instant, Duration)>,
    worked: Option<Instant>,
    /// It does nothing since then, for sure: a script that hangs.
    hangs: Option<Instant>,
    over: bool,
}

// === impl Seen ===

impl Seen {
    /// It has said that it makes a failed request again.
    pub fn retries(&self) {
        let now = Instant::now();
        let mut retries = self.retries.lock().unwrap_or_else(PoisonError::into_inner);
        let row = retries.get_or_insert(Retries { first: now, last: now, count: 0 });
        row.last = now;
        row.count = row.count.saturating_add(1);
    }

    /// A request has succeeded.
    pub fn goes_on(&self) {
        *self.retries.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// It has made failed requests again for this long. One that was answered may be thought about for long without a
    /// word: only the next failure shows that it was not.
    fn retried_for(&self) -> Option<Duration> {
        let row = (*self.retries.lock().unwrap_or_else(PoisonError::into_inner))?;
        (row.count >= RETRIES).then(|| row.last.duration_since(row.first))
    }
}

// === impl Limits ===

impl Limits {
    /// The shortest of the time limits.
    pub fn shortest(&self) -> Option<Duration> {
        [self.first_output, self.silence, self.total, self.linger, self.retrying].into_iter().flatten().min()
    }
}

// === impl Sign ===

impl Sign {
    /// Why and how the call is to be ended, if it is.
    pub fn ends(self) -> Option<(OurReason, Duration)> {
        match self {
            Sign::End(reason, grace) => Some((reason, grace)),
            _ => None,
        }
    }
}

// === impl VitalSigns ===

impl VitalSigns {
    /// Of a call that begins now.
    pub fn new(limits: Limits, activity: Arc<Activity>, seen: Arc<Seen>) -> Self {
        let now = Instant::now();
        VitalSigns {
            limits,
            activity,
            seen,
            terminal_since: None,
            started: now,
            call: Weak::new(),
            sampling: false,
            last: None,
            worked: None,
            hangs: None,
            over: false,
        }
    }

    /// The process tree to sample.
    pub fn watch(&mut self, call: &Arc<Call>) {
        self.call = Arc::downgrade(call);
    }

    /// It does nothing any more, and there is no process to sample.
    pub fn hangs(&mut self) {
        self.hangs = Some(Instant::now());
    }

    /// The call has ended.
    pub fn over(&mut self) {
        self.over = true;
    }

    /// Looks.
    pub fn look(&mut self) -> Sign {
        if self.over {
            return Sign::Well;
        }
        let (now, grace) = (Instant::now(), self.limits.grace);
        let passed =
            |limit: Option<Duration>, since: Instant| limit.is_some_and(|limit| now >= since + limit);
        if self.limits.tool_calls.is_some_and(|most| self.seen.tools.load(Relaxed) >= most) {
            return Sign::End(OurReason::Cap, grace);
        }
        if self.seen.terminal.load(Relaxed) {
            let since = *self.terminal_since.get_or_insert(now);
            if passed(self.limits.linger, since) {
                return Sign::End(OurReason::Linger, grace);
            }
        } else {
            self.terminal_since = None;
        }
        let retried = self.limits.retrying.zip(self.seen.retried_for());
        if retried.is_some_and(|(limit, retried)| retried >= limit) {
            return Sign::End(OurReason::Retrying, grace);
        }
        if passed(self.limits.total, self.started) {
            return Sign::End(OurReason::Total, grace);
        }
        if let Some(since) = self.hangs
            && passed(self.quiet_limit(), since)
        {
            return Sign::End(self.silence(), grace);
        }
        let Some(limit) = self.quiet_limit() else { return self.sample_if(self.limits.max_rss.is_some()) };
        if self.silent_for() < limit / 2 {
            self.last = None;
            self.worked = None;
            return self.sample_if(self.limits.max_rss.is_some());
        }
        self.sample_if(true)
    }

    /// Takes a sample in: `Some` when it shows that the call is to be ended.
    pub fn sampled(&mut self, usage: TreeUsage) -> Option<Sign> {
        self.sampling = false;
        let now = Instant::now();
        if self.limits.max_rss.is_some_and(|max| usage.rss_bytes > max) {
            return Some(Sign::End(OurReason::Cap, self.limits.grace));
        }
        let since = self.last.replace((now, usage.cpu));
        let works = match since {
            Some((at, cpu)) => {
                let wall = now.duration_since(at).as_secs_f64();
                usage.cpu.saturating_sub(cpu).as_secs_f64() > wall * WORKING
            }
            None => false,
        };
        if works {
            self.worked = Some(now);
        }
        let limit = self.quiet_limit()?;
        let silent = self.silent_for();
        let quiet = self.worked.map_or(silent, |at| silent.min(now.duration_since(at)));
        // One sample says nothing about work: the first only begins the comparison.
        (since.is_some() && quiet >= limit).then(|| Sign::End(self.silence(), self.limits.grace))
    }

    fn silence(&self) -> OurReason {
        if self.activity.bytes() == 0 { OurReason::FirstOutput } else { OurReason::Silence }
    }

    fn sample_if(&mut self, wanted: bool) -> Sign {
        match self.call.upgrade().filter(|_| wanted && !self.sampling) {
            Some(call) => {
                self.sampling = true;
                Sign::Sample(call)
            }
            None => Sign::Well,
        }
    }

    /// The limit that silence is measured against now.
    fn quiet_limit(&self) -> Option<Duration> {
        if self.activity.bytes() == 0 {
            self.limits.first_output.or(self.limits.silence)
        } else {
            self.limits.silence
        }
    }

    fn silent_for(&self) -> Duration {
        self.activity.silent_for()
    }
}
