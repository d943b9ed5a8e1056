//! An event as one line: time, mark, words.

use jiff::tz::TimeZone;

use super::words::{is_bad, is_good, words};
use crate::cli::output::{Style, paint};
use crate::domain::event::{Body, Event, Level};

/// How much of the time is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// The time of day: for what happens now.
    Time,
    /// Day and time: for what may be long ago.
    Full,
}

/// Makes the lines.
#[derive(Debug, Clone)]
pub struct Lines {
    /// In which times are shown.
    pub zone: TimeZone,
    /// How much of them.
    pub stamp: Stamp,
    /// With colours.
    pub colours: bool,
}

// === impl Lines ===

impl Lines {
    /// The event on one line, without its end.
    pub fn line(&self, event: &Event) -> String {
        let format = match self.stamp {
            Stamp::Time => "%H:%M:%S",
            Stamp::Full => "%Y-%m-%d %H:%M:%S",
        };
        let local = event.time.to_zoned_datetime(self.zone.clone());
        let time = local.strftime(format).to_string();
        let time = paint(self.colours, Style::Dim, &time);
        let text = words(event, &self.zone);
        let (mark, style) = look(event);
        match style {
            Some(style) => {
                format!("{time} {} {}", paint(self.colours, style, mark), paint(self.colours, style, &text))
            }
            None => format!("{time} {mark} {text}"),
        }
    }
}

fn look(event: &Event) -> (&'static str, Option<Style>) {
    match event.level {
        _ if is_good(&event.body) => ("+", Some(Style::Good)),
        _ if is_bad(&event.body) => ("-", Some(Style::Bad)),
        Level::Error => ("x", Some(Style::Bad)),
        Level::Warn => ("!", Some(Style::Warn)),
        Level::Debug => (".", Some(Style::Dim)),
        Level::Info => match event.body {
            Body::SessionStarted(_) | Body::SessionResumed { .. } | Body::IterationStarted {} => {
                (">", Some(Style::Bold))
            }
            _ => (" ", None),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::EventId;
    use crate::domain::state::{GateResult, Phase, Reason};

    fn event(body: Body) -> Event {
        Event {
            id: EventId(ulid::Ulid::nil()),
            seq: 1,
            time: "2026-08-22T10:00:00Z".parse().unwrap(),
            level: body.level(),
            session: None,
            lane: None,
            iteration: Some(3),
            attempt: Some(2),
            provider: Some("claude".into()),
            body,
        }
    }

    fn shown(body: Body) -> String {
        Lines { zone: TimeZone::UTC, stamp: Stamp::Time, colours: false }.line(&event(body))
    }

    #[test]
    fn one_line_each() {
        let finished = Body::SessionFinished {
            state: Phase::Finished,
            reason: Reason::GoalsMet,
            detail: "All\ndone.".into(),
            iterations: 3,
            spent_usd: 0.25,
        };
        let failed = Body::GateFinished {
            name: "check".into(),
            result: GateResult::Failed,
            tree: None,
            exit: Some(crate::domain::outcome::Exit::Code(1)),
            duration_ms: 420,
            tail: "a\nmissing: \x1b[31mlist\n\n".into(),
            reused: false,
        };
        assert_eq!(shown(Body::IterationStarted {}), "10:00:00 > iteration 3");
        assert_eq!(
            shown(finished),
            "10:00:00 + finished: the goals are met (3 iterations, $0.25): All done."
        );
        assert_eq!(
            shown(failed),
            "10:00:00 - gate check failed, 420ms, exit code 1: missing: \\u{1b}[31mlist"
        );
        let paused = Body::SessionPaused { reason: Reason::DiskLow, detail: String::new(), in_flight: true };
        assert_eq!(
            shown(paused),
            "10:00:00 ! paused, once the call in flight is over: the disk is nearly full"
        );
    }

    #[test]
    fn colours_and_days_only_where_they_are_wanted() {
        let lines = Lines { zone: TimeZone::UTC, stamp: Stamp::Full, colours: true };
        let line = lines.line(&event(Body::Stagnation { iterations: 1 }));
        assert_eq!(
            line,
            "\x1b[2m2026-08-22 10:00:00\x1b[0m \x1b[33m!\x1b[0m \x1b[33mno file changed for 1 iteration\x1b[0m"
        );
    }
}
