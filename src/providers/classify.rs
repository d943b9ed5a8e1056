//! From what a call printed and how it ended to exactly one outcome.
//!
//! The order of the steps is the order of trust: a success that the provider states with something to show for
//! it; the terminal result's own fields; our own reasons for ending it; structured error events; known exit
//! codes; the last lines of stderr, then stdout, of a failed exit. Tool results, the agent's prose and the
//! prompt's echo never get here: decoders do not keep them. Within a step the most specific cause wins
//! ([`OutcomeKind::rank`]).

use std::cell::OnceCell;
use std::sync::Arc;

use jiff::{Timestamp, ZonedDateTime};

use super::call::{CallEnd, OurReason, StartFailure};
use super::decode::{ErrorEvent, LimitNotice, Terminal, Transcript, cut};
use super::definition::{Definition, OutcomeKind, Rule, Where};
use super::said::{Passage, is_own_message, passages, says_no_more};
use super::status::{status_in_words, status_outcome};
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
    // Most calls succeed, and nobody asks what stands in their last lines.
    let (stderr, stdout) = (&OnceCell::new(), &OnceCell::new());
    let case = Case { definition, transcript, stderr, stdout, exit, ended_by: end.ended_by, changed, now };
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
    stderr: &'a OnceCell<Vec<Passage>>,
    stdout: &'a OnceCell<Vec<Passage>>,
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
    /// What stands beside it and may say when the limit ends.
    when: Option<&'a str>,
}

/// Longest evidence text, in bytes.
const EVIDENCE_MAX: usize = 500;

/// Messages at stderr's end that count as its last lines.
const LAST_OF_STDERR: usize = 24;

/// Messages at stdout's end that count as its last lines: of text, most of it is the agent's prose.
const LAST_OF_STDOUT: usize = 4;

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
    // Of a JSON format these are the CLI's own words, wherever they stood; of text they may be anybody's.

    fn stderr(&self) -> &'a [Passage] {
        let last = if self.transcript.format.has_terminal_event() { usize::MAX } else { LAST_OF_STDERR };
        self.stderr.get_or_init(|| passages(&self.transcript.stderr, last))
    }

    fn stdout(&self) -> &'a [Passage] {
        let last = if self.transcript.format.has_terminal_event() { usize::MAX } else { LAST_OF_STDOUT };
        self.stdout.get_or_init(|| passages(&self.transcript.stdout, last))
    }

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
        // Tokens that were paid for are the model's own words.
        let spoke = self.transcript.usage.output_tokens.is_some_and(|tokens| tokens > 0);
        if answer.is_empty() || answer.len() > DISGUISED_MAX || spoke {
            return None;
        }
        self.decide(self.matches(Where::Answer, "result", [answer]))
    }

    /// We ended it because someone said so; what it said meanwhile is no evidence.
    fn stopped(&self) -> Option<Verdict> {
        let (outcome, rule) = match self.ended_by? {
            OurReason::Stop => (Outcome::Cancelled, "ended.stop"),
            OurReason::Cap => (Outcome::CapReached, "ended.cap"),
            OurReason::FirstOutput
            | OurReason::Silence
            | OurReason::Total
            | OurReason::Linger
            | OurReason::Retrying => return None,
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
            OurReason::Retrying => (Outcome::Overloaded, "ended.retrying"),
            OurReason::Stop | OurReason::Cap => return None,
        };
        let explained = self.error_event().or_else(|| match self.definition.exit_code_is_evidence {
            true => self.lines(Where::Stderr, "stderr", self.stderr()),
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
        let failed = !self.exit.success() || self.ended_by.is_some();
        let reported = self.transcript.pending_error.iter().filter(|error| !error.retrying || failed);
        let of_event = reported.flat_map(|error| self.error(error, Where::ErrorEvent, "event"));
        let of_limit = self.transcript.limit.iter().map(|notice| self.limit(notice));
        self.decide(of_event.chain(of_limit))
    }

    /// An exit code with a meaning of its own in the provider's file, unless its words tell a more specific cause.
    fn known_exit_code(&self) -> Option<Verdict> {
        let code = self.code()?;
        let kind = *self.definition.exit_codes.get(&code)?;
        let text = self.last_line();
        let rule = format!("{}.exit.{code}", self.definition.name);
        let own =
            Candidate { kind, weak: false, rule, scope: kind.scope(), source: "exit", text, when: None };
        // Of a call that somebody cut short its words are not the last ones.
        let words = match kind {
            OutcomeKind::TimedOut => Vec::new(),
            _ => self.of_lines(Where::Stderr, "stderr", self.stderr()),
        };
        self.decide([own].into_iter().chain(words))
    }

    /// Known wordings among the last lines that it printed: stderr first.
    fn last_lines(&self) -> Option<Verdict> {
        self.lines(Where::Stderr, "stderr", self.stderr())
            .or_else(|| self.lines(Where::Stdout, "stdout", self.stdout()))
    }

    fn lines(&self, place: Where, source: &'static str, passages: &'a [Passage]) -> Option<Verdict> {
        self.decide(self.of_lines(place, source, passages))
    }

    /// Causes that fit lines, the last one's first: of equals that is the freshest.
    fn of_lines(&self, place: Where, source: &'static str, passages: &'a [Passage]) -> Vec<Candidate<'a>> {
        let mut found = Vec::new();
        for passage in passages.iter().rev() {
            let prose = self.is_prose(place);
            if prose && passage.table {
                continue;
            }
            let text = passage.text.as_str();
            let of_body = passage.body.iter().flat_map(|error| self.error(error, place, source));
            let when = passage.when.as_deref();
            let own_line =
                |candidate: Candidate<'a>| Candidate { when: candidate.when.or(when), ..candidate };
            let mut of_line = Vec::new();
            if !prose || is_own_message(text, &(text.find('{').unwrap_or(0)..text.len())) {
                of_line.extend(of_body.map(own_line));
            }
            of_line.extend(self.matches(place, source, [text]).map(own_line));
            of_line.extend(self.status_in(place, source, text).map(own_line));
            found.extend(without_busy_429(of_line));
        }
        own_rules_first(found, &["servers.", "http."])
    }

    /// Lines of text on stdout are the agent's prose, too.
    fn is_prose(&self, place: Where) -> bool {
        place == Where::Stdout && !self.transcript.format.has_terminal_event()
    }

    /// An HTTP status that words tell.
    fn status_in(&self, place: Where, source: &'static str, text: &'a str) -> Option<Candidate<'a>> {
        let (status, found) = status_in_words(text)?;
        let kind = status_outcome(status)?;
        if self.is_prose(place) && !(is_own_message(text, &found) && says_no_more(text, found.end)) {
            return None;
        }
        let rule = format!("http.{status}");
        Some(Candidate { kind, weak: false, rule, scope: kind.scope(), source, text, when: None })
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
            found.push(Candidate {
                kind,
                weak: false,
                rule,
                scope: kind.scope(),
                source,
                text: told,
                when: None,
            });
        }
        let of_limit = self.transcript.limit.iter().map(|notice| self.limit(notice));
        found.extend(of_limit.map(|candidate| Candidate { text: told, ..candidate }));
        found.extend(self.matches(place, source, [error.message.as_str()]));
        if error.status.is_none() {
            found.extend(self.status_in(place, source, &error.message));
        }
        own_rules_first(without_busy_429(found), &["servers."])
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
            when: None,
        }
    }

    fn matches<'b>(
        &'b self,
        place: Where,
        source: &'static str,
        texts: impl IntoIterator<Item = &'a str> + 'b,
    ) -> impl Iterator<Item = Candidate<'a>> + 'b {
        let rules = &self.definition.rules;
        let (prose, answer) = (self.is_prose(place), place == Where::Answer);
        texts.into_iter().flat_map(move |text| {
            let fits = move |rule: &&Arc<Rule>| {
                rule.places.contains(place)
                    && match rule.pattern.find_at(text) {
                        Some(found) if prose => is_own_message(text, &found),
                        Some(found) if answer => says_no_more(text, found.end),
                        found => found.is_some(),
                    }
                    && rule.unless.as_ref().is_none_or(|unless| !unless.is_match(text))
            };
            rules.iter().filter(fits).map(move |rule| {
                let kind = match (rule.long, rule.short) {
                    (None, None) => rule.outcome,
                    (long, short) => match self.is_far(text) {
                        Some(true) => long.unwrap_or(rule.outcome),
                        Some(false) => short.unwrap_or(rule.outcome),
                        None => rule.outcome,
                    },
                };
                let scope = rule.scope.unwrap_or(kind.scope());
                Candidate { kind, weak: rule.weak, rule: rule.id.clone(), scope, source, text, when: None }
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
        let Candidate { kind, rule, scope, source, text, when, .. } = best?;
        let outcome = kind.outcome(self.until(kind, text, when), self.code(), cut(text, EVIDENCE_MAX));
        Some(verdict(outcome, scope, source, text, rule))
    }

    /// Whether the time that the text names is no matter of a short window.
    fn is_far(&self, text: &str) -> Option<bool> {
        let until = reset_time::parse(text, self.now)?;
        Some(until.duration_since(self.now.timestamp()).unsigned_abs() > Rule::LONG)
    }

    /// When a limit ends: the rejecting notice's own time before any words.
    fn until(&self, kind: OutcomeKind, text: &str, when: Option<&str>) -> Option<Timestamp> {
        let limits = [OutcomeKind::RateLimited, OutcomeKind::UsageLimited, OutcomeKind::QuotaExhausted];
        if !limits.contains(&kind) {
            return None;
        }
        let noticed = self.transcript.limit.as_ref().and_then(|notice| notice.resets_at);
        match noticed {
            Some(at) => Some(reset_time::bounded(at, self.now.timestamp())),
            None => reset_time::parse(text, self.now).or_else(|| reset_time::parse(when?, self.now)),
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

/// Of equals the rule that knows the CLI explains better than what any server says.
fn own_rules_first<'a>(mut found: Vec<Candidate<'a>>, general: &[&str]) -> Vec<Candidate<'a>> {
    found.sort_by_key(|candidate| general.iter().any(|lead| candidate.rule.starts_with(lead)));
    found
}

/// A 429 of a server that says it has no room is no limit of this account.
fn without_busy_429(mut found: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    let by_status = |candidate: &Candidate<'_>| {
        candidate.rule == "http.429" || candidate.rule.ends_with(".kind.rate_limit")
    };
    if found.iter().any(|other| other.kind == OutcomeKind::Overloaded && !other.weak && !by_status(other)) {
        found.retain(|candidate| candidate.kind != OutcomeKind::RateLimited || !by_status(candidate));
    }
    found
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

/// The signal that a shell's or a CLI's exit code stands for.
fn shell_signal(code: i32) -> Option<i32> {
    FATAL_SIGNALS.iter().copied().find(|signal| code == 128 + signal)
}
