//! From what a call printed and how it ended to exactly one outcome.
//!
//! The order of the steps is the order of trust: a success that the provider states with something to show for
//! it; the terminal result's own fields; our own reasons for ending it; structured error events; known exit
//! codes; the last lines of stderr, then stdout, of a failed exit. Tool results, the agent's prose and the
//! prompt's echo never get here: decoders do not keep them. Within a step the most specific cause wins
//! ([`OutcomeKind::rank`]).

use jiff::{Timestamp, ZonedDateTime};

use super::call::{CallEnd, OurReason, StartFailure};
use super::decode::{ErrorEvent, LimitNotice, Terminal, Transcript, cut};
use super::definition::{Definition, OutcomeKind, Rule, Where};
use crate::domain::claim::Claim;
use crate::domain::outcome::{AccountScope, Evidence, Exit, Outcome, Verdict};
use crate::domain::reset_time;

/// Judges one call. `changed`: the lane's tree is another one than before; `now` carries the host's time zone,
/// which is what times without a zone are in.
pub fn classify(
    definition: &Definition,
    transcript: &Transcript,
    end: &CallEnd,
    changed: bool,
    now: &ZonedDateTime,
) -> Verdict {
    let exit = match &end.exit {
        Ok(exit) => *exit,
        Err(failure) => return not_started(failure, end.ended_by),
    };
    let case = Case { definition, transcript, exit, ended_by: end.ended_by, changed, now };
    case.success()
        .or_else(|| case.stopped())
        .or_else(|| case.terminal_failure())
        .or_else(|| case.limit_of_ours())
        .or_else(|| case.fatal_end())
        .or_else(|| case.error_event())
        .or_else(|| case.known_exit_code())
        .or_else(|| case.last_lines())
        .unwrap_or_else(|| case.unexplained())
}

/// One call to judge.
struct Case<'a> {
    definition: &'a Definition,
    transcript: &'a Transcript,
    exit: Exit,
    ended_by: Option<OurReason>,
    changed: bool,
    now: &'a ZonedDateTime,
}

/// A cause that fits.
struct Candidate<'a> {
    kind: OutcomeKind,
    weak: bool,
    rule: String,
    scope: AccountScope,
    source: &'static str,
    text: &'a str,
}

/// Longest evidence text, in bytes.
const EVIDENCE_MAX: usize = 500;

/// Lines of stderr's end that count as its last lines.
const LAST_OF_STDERR: usize = 24;

/// Lines of stdout's end that count as its last lines: of text, most of it is the agent's prose.
const LAST_OF_STDOUT: usize = 4;

/// A program's own message starts a line of text, after a glyph and «Error: » at most; prose may quote one later.
const LINE_START: usize = 16;

/// A longer answer is never an error message in disguise.
const DISGUISED_MAX: usize = 600;

/// Exit codes of shells: found but not executable; not found.
const SHELL_NOT_RUNNABLE: [i32; 2] = [126, 127];

/// Signals by which somebody ends a program: INT, KILL, TERM, HUP. Others are its own doing.
const KILLED: [i32; 4] = [1, 2, 9, 15];

/// Signals that end a process; a shell reports them as 128 + number.
const FATAL_SIGNALS: [i32; 11] = [1, 2, 3, 4, 6, 7, 8, 9, 11, 13, 15];

// === impl Case ===

impl<'a> Case<'a> {
    /// A success that the provider states, with evidence of work.
    fn success(&self) -> Option<Verdict> {
        let transcript = self.transcript;
        let (source, rule) = match transcript.terminal {
            Some(Terminal::Success) => ("result", "result.success"),
            Some(_) => return None,
            None if transcript.format.has_terminal_event() => return None,
            None if !self.exit.success() || self.ended_by.is_some() => return None,
            None => ("exit", "exit.success"),
        };
        if !self.definition.exit_code_is_evidence
            && let Some(failure) = self.last_lines()
        {
            return Some(failure);
        }
        let answer = transcript.answer.trim();
        let idle = !self.changed && transcript.tools_used == 0;
        if idle && let Some(disguised) = self.disguised(answer) {
            return Some(disguised);
        }
        let (outcome, rule) = if idle && answer.is_empty() && transcript.denied.is_empty() {
            (Outcome::Empty, format!("{rule}.empty"))
        } else {
            let denied = transcript.denied.clone();
            (
                Outcome::Completed {
                    changed: self.changed,
                    claims_done: transcript.reading.claim == Some(Claim::Done),
                    denied,
                },
                rule.to_owned(),
            )
        };
        let last_line = answer.lines().next_back().unwrap_or_default();
        let mut verdict = verdict(outcome, AccountScope::None, source, last_line, rule);
        if verdict.outcome == Outcome::Empty {
            verdict.scope = AccountScope::Request;
        }
        verdict.warning = self.odd_end();
        Some(verdict)
    }

    /// What is odd about the end of a success.
    fn odd_end(&self) -> Option<String> {
        match (self.ended_by, self.exit) {
            (Some(OurReason::Linger), _) => Some("it did not exit after its result and was ended".to_owned()),
            (Some(_), _) | (None, Exit::Code(0)) => None,
            (None, Exit::Code(code)) => Some(format!("it reported success, then exited with code {code}")),
            (None, Exit::Signal(signal)) => {
                Some(format!("it reported success, then signal {signal} ended it"))
            }
        }
    }

    /// An error message that was passed off as the whole answer.
    fn disguised(&self, answer: &'a str) -> Option<Verdict> {
        if answer.is_empty() || answer.len() > DISGUISED_MAX {
            return None;
        }
        self.decide(self.matches(Where::Answer, "result", [answer]))
    }

    /// We ended it because someone said so; what it said meanwhile is no evidence.
    fn stopped(&self) -> Option<Verdict> {
        let (outcome, rule) = match self.ended_by? {
            OurReason::Stop => (Outcome::Cancelled, "ended.stop"),
            OurReason::Cap => (Outcome::CapReached, "ended.cap"),
            OurReason::FirstOutput | OurReason::Silence | OurReason::Total | OurReason::Linger => {
                return None;
            }
        };
        let scope = if outcome == Outcome::CapReached { AccountScope::Request } else { AccountScope::None };
        Some(verdict(outcome, scope, "limit", "", rule.to_owned()))
    }

    /// The terminal result says failure.
    fn terminal_failure(&self) -> Option<Verdict> {
        match self.transcript.terminal.as_ref()? {
            Terminal::Success => None,
            Terminal::Cap(name) => Some(verdict(
                Outcome::CapReached,
                AccountScope::Request,
                "result",
                name,
                format!("{}.result.cap", self.definition.name),
            )),
            Terminal::Aborted(reason) => {
                // Somebody interrupted it, and it was not us: it counts as killed.
                let (signal, code) = match self.exit {
                    Exit::Signal(signal) => (Some(signal), None),
                    Exit::Code(code) => (None, Some(code)),
                };
                let outcome = Outcome::Crashed { signal, code };
                let rule = format!("{}.result.aborted", self.definition.name);
                Some(verdict(outcome, AccountScope::None, "result", reason, rule))
            }
            Terminal::Failure(error) => {
                let known = self.decide(self.error(error, Where::Result, "result"));
                Some(known.unwrap_or_else(|| {
                    let outcome = Outcome::Unknown {
                        code: self.code(),
                        tail: cut(&error.message, EVIDENCE_MAX).to_owned(),
                    };
                    let rule = format!("{}.result.unknown", self.definition.name);
                    verdict(outcome, AccountScope::None, "result", &error.message, rule)
                }))
            }
        }
    }

    /// One of our time limits ended it. What it was retrying at that time is the better explanation.
    fn limit_of_ours(&self) -> Option<Verdict> {
        let (outcome, rule) = match self.ended_by? {
            OurReason::FirstOutput => (Outcome::SilentHang, "ended.first_output"),
            OurReason::Silence => (Outcome::SilentHang, "ended.silence"),
            OurReason::Total => (Outcome::TimedOut, "ended.total"),
            OurReason::Linger => (Outcome::Truncated, "ended.linger"),
            OurReason::Stop | OurReason::Cap => return None,
        };
        let explained = self.error_event().or_else(|| match self.definition.exit_code_is_evidence {
            true => self.lines(Where::Stderr, "stderr", &self.transcript.stderr),
            // What it prints itself counts at any end.
            false => self.last_lines(),
        });
        Some(explained.unwrap_or_else(|| {
            verdict(outcome, AccountScope::None, "limit", self.last_line(), rule.to_owned())
        }))
    }

    /// Ends that explain themselves: a signal that we did not send, a shell that could not run it.
    fn fatal_end(&self) -> Option<Verdict> {
        match self.exit {
            Exit::Signal(signal) if KILLED.contains(&signal) && self.explains_killing() => None,
            Exit::Signal(signal) => {
                let outcome = Outcome::Crashed { signal: Some(signal), code: None };
                Some(verdict(
                    outcome,
                    AccountScope::None,
                    "signal",
                    self.last_line(),
                    "exit.signal".to_owned(),
                ))
            }
            Exit::Code(code) if SHELL_NOT_RUNNABLE.contains(&code) => {
                let rule = format!("exit.{code}");
                Some(verdict(Outcome::NotRunnable, AccountScope::None, "exit", self.last_line(), rule))
            }
            Exit::Code(_) => None,
        }
    }

    /// Somebody ended it while it was trying again after a failure: that is the better explanation.
    fn explains_killing(&self) -> bool {
        self.error_event().is_some()
    }

    /// The failure that it had reported as an event when its output ended.
    fn error_event(&self) -> Option<Verdict> {
        // A retry notice is progress: it explains a failed end, not one that claims success.
        let reported =
            self.transcript.pending_error.iter().filter(|error| !error.retrying || !self.exit.success());
        let of_event = reported.flat_map(|error| self.error(error, Where::ErrorEvent, "event"));
        let of_limit = self.transcript.limit.iter().map(|notice| self.limit(notice));
        self.decide(of_event.chain(of_limit))
    }

    /// An exit code with a meaning of its own in the provider's file.
    fn known_exit_code(&self) -> Option<Verdict> {
        let code = self.code()?;
        let kind = *self.definition.exit_codes.get(&code)?;
        let line = self.last_line();
        let rule = format!("{}.exit.{code}", self.definition.name);
        Some(verdict(
            kind.outcome(self.until(kind, line), Some(code), line),
            kind.scope(),
            "exit",
            line,
            rule,
        ))
    }

    /// Known wordings among the last lines that it printed: stderr first.
    fn last_lines(&self) -> Option<Verdict> {
        let transcript = self.transcript;
        self.lines(Where::Stderr, "stderr", &transcript.stderr)
            .or_else(|| self.lines(Where::Stdout, "stdout", &transcript.stdout))
    }

    fn lines(&self, place: Where, source: &'static str, lines: &'a [String]) -> Option<Verdict> {
        // Of a JSON format these are the CLI's own words, wherever they stood; of text they may be anybody's.
        let from = match self.transcript.format.has_terminal_event() {
            true => 0,
            false if place == Where::Stdout => lines.len().saturating_sub(LAST_OF_STDOUT),
            false => lines.len().saturating_sub(LAST_OF_STDERR),
        };
        // The last of equals is the freshest.
        self.decide(self.matches(place, source, lines[from..].iter().rev().map(String::as_str)))
    }

    /// No evidence of a cause at all.
    fn unexplained(&self) -> Verdict {
        let transcript = self.transcript;
        let line = self.last_line();
        let silent = transcript.counts.stdout_lines == 0;
        let (outcome, scope, rule) = match (self.exit, self.code()) {
            (Exit::Code(0), _) if silent => (Outcome::Empty, AccountScope::Request, "exit.empty"),
            (_, Some(code)) if line.is_empty() && silent => (
                Outcome::Crashed { signal: shell_signal(code), code: Some(code) },
                AccountScope::None,
                "exit.silent",
            ),
            (_, Some(code)) if shell_signal(code).is_some() => (
                Outcome::Crashed { signal: shell_signal(code), code: Some(code) },
                AccountScope::None,
                "exit.signal",
            ),
            _ if transcript.format.has_terminal_event() => {
                (Outcome::Truncated, AccountScope::Request, "stream.no_terminal_result")
            }
            (_, code) => (
                Outcome::Unknown { code, tail: cut(line, EVIDENCE_MAX).to_owned() },
                AccountScope::None,
                "exit.unknown",
            ),
        };
        let source = if line.is_empty() { "exit" } else { self.last_line_source() };
        verdict(outcome, scope, source, line, rule.to_owned())
    }

    /// Causes that fit a structured error: its kinds, its status, a limit notice before it, then its words; of
    /// equally specific ones the first counts.
    fn error(&self, error: &'a ErrorEvent, place: Where, source: &'static str) -> Vec<Candidate<'a>> {
        let told = match error.message.as_str() {
            "" => error.kinds.first().map_or("", String::as_str),
            message => message,
        };
        let of_kind = self.matches(Where::Kind, source, error.kinds.iter().map(String::as_str));
        let mut found: Vec<_> = of_kind.map(|candidate| Candidate { text: told, ..candidate }).collect();
        if let Some((status, kind)) = error.status.and_then(|status| Some((status, status_outcome(status)?)))
        {
            let rule = format!("http.{status}");
            found.push(Candidate { kind, weak: false, rule, scope: kind.scope(), source, text: told });
        }
        let of_limit = self.transcript.limit.iter().map(|notice| self.limit(notice));
        found.extend(of_limit.map(|candidate| Candidate { text: told, ..candidate }));
        found.extend(self.matches(place, source, [error.message.as_str()]));
        found
    }

    fn limit(&self, notice: &'a LimitNotice) -> Candidate<'a> {
        let kind = OutcomeKind::UsageLimited;
        let window = notice.window.as_deref().unwrap_or_default();
        // Windows of one model are named after it: seven_day_opus.
        let of_model = ["opus", "sonnet", "haiku", "fable"].iter().any(|model| window.contains(model));
        let scope = if of_model { AccountScope::Model } else { AccountScope::Account };
        Candidate {
            kind,
            weak: false,
            rule: format!("{}.limit_event.rejected", self.definition.name),
            scope,
            source: "event",
            text: window,
        }
    }

    fn matches<'b>(
        &'b self,
        place: Where,
        source: &'static str,
        texts: impl IntoIterator<Item = &'a str> + 'b,
    ) -> impl Iterator<Item = Candidate<'a>> + 'b {
        let rules = &self.definition.rules;
        let prose = place == Where::Stdout && !self.transcript.format.has_terminal_event();
        texts.into_iter().flat_map(move |text| {
            let fits = move |rule: &&Rule| {
                rule.places.contains(place)
                    && match prose {
                        true => rule.pattern.matches_early(text, LINE_START),
                        false => rule.pattern.is_match(text),
                    }
                    && rule.unless.as_ref().is_none_or(|unless| !unless.is_match(text))
            };
            rules.iter().filter(fits).map(move |rule| {
                let kind = match rule.long {
                    Some(long) if self.is_far(text) => long,
                    _ => rule.outcome,
                };
                let scope = rule.scope.unwrap_or(kind.scope());
                Candidate { kind, weak: rule.weak, rule: rule.id.clone(), scope, source, text }
            })
        })
    }

    /// The most specific of the causes that fit; of equals the first.
    fn decide(&self, candidates: impl IntoIterator<Item = Candidate<'a>>) -> Option<Verdict> {
        let mut best: Option<Candidate<'_>> = None;
        for candidate in candidates {
            if best.as_ref().is_none_or(|best| candidate.beats(best)) {
                best = Some(candidate);
            }
        }
        let Candidate { kind, rule, scope, source, text, .. } = best?;
        let outcome = kind.outcome(self.until(kind, text), self.code(), cut(text, EVIDENCE_MAX));
        Some(verdict(outcome, scope, source, text, rule))
    }

    /// The text names a time that is no matter of a short window.
    fn is_far(&self, text: &str) -> bool {
        let until = reset_time::parse(text, self.now);
        until.is_some_and(|until| until.duration_since(self.now.timestamp()).unsigned_abs() > Rule::LONG)
    }

    /// When a limit ends: the rejecting notice's own time before any words.
    fn until(&self, kind: OutcomeKind, text: &str) -> Option<Timestamp> {
        let limits = [OutcomeKind::RateLimited, OutcomeKind::UsageLimited, OutcomeKind::QuotaExhausted];
        if !limits.contains(&kind) {
            return None;
        }
        let noticed = self.transcript.limit.as_ref().and_then(|notice| notice.resets_at);
        match noticed {
            Some(at) => Some(reset_time::bounded(at, self.now.timestamp())),
            None => reset_time::parse(text, self.now),
        }
    }

    fn code(&self) -> Option<i32> {
        match self.exit {
            Exit::Code(code) => Some(code),
            Exit::Signal(_) => None,
        }
    }

    /// The last thing it said, preferably on stderr.
    fn last_line(&self) -> &'a str {
        let transcript = self.transcript;
        transcript.stderr.last().or(transcript.stdout.last()).map_or("", String::as_str)
    }

    fn last_line_source(&self) -> &'static str {
        if self.transcript.stderr.is_empty() { "stdout" } else { "stderr" }
    }
}

// === impl Candidate ===

impl Candidate<'_> {
    fn beats(&self, other: &Self) -> bool {
        (!self.weak, self.kind.rank()) > (!other.weak, other.kind.rank())
    }
}

/// The verdict on a call whose program never ran.
pub fn not_started(failure: &StartFailure, ended_by: Option<OurReason>) -> Verdict {
    let text = failure.to_string();
    if ended_by == Some(OurReason::Stop) {
        return verdict(Outcome::Cancelled, AccountScope::None, "limit", "", "ended.stop".to_owned());
    }
    let (outcome, rule) = match failure {
        StartFailure::Busy(_) => (Outcome::Unknown { code: None, tail: text.clone() }, "start.busy"),
        StartFailure::NotFound(_) => (Outcome::NotRunnable, "start.not_found"),
        StartFailure::NotExecutable(_) => (Outcome::NotRunnable, "start.not_executable"),
        StartFailure::IsDirectory(_) => (Outcome::NotRunnable, "start.is_directory"),
        StartFailure::BadFormat(_) => (Outcome::NotRunnable, "start.bad_format"),
        StartFailure::TooLong(_) => (Outcome::NotRunnable, "start.too_long"),
        StartFailure::Folder(_) => (Outcome::NotRunnable, "start.folder"),
        StartFailure::Other(_) => (Outcome::NotRunnable, "start.failed"),
    };
    verdict(outcome, AccountScope::None, "exit", &text, rule.to_owned())
}

fn verdict(outcome: Outcome, scope: AccountScope, source: &str, text: &str, rule: String) -> Verdict {
    let evidence = Evidence { source: source.to_owned(), text: cut(text, EVIDENCE_MAX).to_owned() };
    Verdict { outcome, scope, evidence, rule, warning: None }
}

/// What an HTTP status means when nothing else says more.
pub fn status_outcome(status: u16) -> Option<OutcomeKind> {
    match status {
        401 | 403 => Some(OutcomeKind::AuthFailed),
        402 => Some(OutcomeKind::QuotaExhausted),
        408 => Some(OutcomeKind::NetworkDown),
        413 => Some(OutcomeKind::ContextOverflow),
        429 => Some(OutcomeKind::RateLimited),
        500..=599 => Some(OutcomeKind::Overloaded),
        _ => None,
    }
}

/// The signal that a shell's or a CLI's exit code stands for.
fn shell_signal(code: i32) -> Option<i32> {
    FATAL_SIGNALS.iter().copied().find(|signal| code == 128 + signal)
}
