//! What a played call comes to.

use jiff::Timestamp;

use super::script::{Failure, Step};
use crate::domain::claim::{AnswerKind, Claim, Reading};
use crate::domain::outcome::{AccountScope, Evidence, Outcome, Usage, Verdict};
use crate::providers::call::OurReason;
use crate::providers::definition::OutcomeKind;

/// The steps of a call, added up.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Performance {
    /// What was said last: the final answer.
    pub answer: String,
    /// What the agent claims.
    pub claim: Option<Claim>,
    /// Tokens and money.
    pub usage: Usage,
    /// Tools used, file edits and commits included.
    pub tools_used: u64,
    end: Option<End>,
}

#[derive(Debug, Clone, PartialEq)]
enum End {
    Failed(Failure),
    Exited(i32),
}

// === impl Performance ===

impl Performance {
    /// Takes a step that has been played.
    pub fn take(&mut self, step: &Step) {
        match step {
            Step::Say(text) => {
                self.claim = Reading::of(text, AnswerKind::Message).claim.or(self.claim.take());
                self.answer.clone_from(text);
            }
            Step::Tool(_)
            | Step::Write { .. }
            | Step::Append { .. }
            | Step::Delete { .. }
            | Step::Commit(_) => {
                self.tools_used += 1;
            }
            Step::Usage(usage) => self.usage = sum(self.usage, *usage),
            Step::ClaimDone => self.claim = Some(Claim::Done),
            Step::ClaimBlocked(why) => self.claim = Some(Claim::Blocked { why: why.clone() }),
            Step::Fail(failure) => self.end = Some(End::Failed(failure.clone())),
            Step::Exit(code) => self.end = Some(End::Exited(*code)),
            Step::Wait(_) | Step::Hang => {}
        }
    }

    /// The outcome. `ended_by`: we ended the call, as after [`Step::Hang`]; `changed`: the lane's tree is another
    /// one than before.
    pub fn verdict(&self, ended_by: Option<OurReason>, changed: bool, now: Timestamp) -> Verdict {
        let (outcome, rule, text) = match (&self.end, ended_by) {
            (_, Some(reason)) => (ended(reason), "rehearsal.ended", String::new()),
            (Some(End::Failed(failure)), None) => {
                let after = failure.after.and_then(|after| now.checked_add(after).ok());
                let outcome = failure.kind.outcome(failure.until.or(after), None, &failure.message);
                return self.told(outcome, failure.kind.scope(), "rehearsal.fail", failure.message.clone());
            }
            (Some(End::Exited(code)), None) if *code != 0 => {
                let outcome = Outcome::Crashed { signal: None, code: Some(*code) };
                (outcome, "rehearsal.exit", format!("exit code {code}"))
            }
            (Some(End::Exited(_)) | None, None) => {
                let nothing =
                    !changed && self.tools_used == 0 && self.answer.trim().is_empty() && self.claim.is_none();
                if nothing {
                    (Outcome::Empty, "rehearsal.empty", String::new())
                } else {
                    let outcome = Outcome::Completed {
                        changed,
                        claims_done: self.claim == Some(Claim::Done),
                        denied: Vec::new(),
                    };
                    (outcome, "rehearsal.completed", self.answer.clone())
                }
            }
        };
        self.told(outcome, AccountScope::None, rule, text)
    }

    fn told(&self, outcome: Outcome, scope: AccountScope, rule: &str, text: String) -> Verdict {
        let evidence = Evidence {
            source: "event".to_owned(),
            text: crate::providers::decode::cut(&text, 500).to_owned(),
        };
        Verdict { outcome, scope, evidence, rule: rule.to_owned(), warning: None }
    }
}

fn ended(reason: OurReason) -> Outcome {
    let kind = match reason {
        OurReason::FirstOutput | OurReason::Silence => OutcomeKind::SilentHang,
        OurReason::Total => OutcomeKind::TimedOut,
        OurReason::Stop => OutcomeKind::Cancelled,
        OurReason::Cap => OutcomeKind::CapReached,
        OurReason::Linger => OutcomeKind::Truncated,
        OurReason::Retrying => OutcomeKind::Overloaded,
    };
    kind.outcome(None, None, "")
}

fn sum(a: Usage, b: Usage) -> Usage {
    let add = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
    };
    let usd = match (a.cost_usd, b.cost_usd) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0.0) + b.unwrap_or(0.0)),
    };
    Usage {
        input_tokens: add(a.input_tokens, b.input_tokens),
        output_tokens: add(a.output_tokens, b.output_tokens),
        cache_read_tokens: add(a.cache_read_tokens, b.cache_read_tokens),
        cache_write_tokens: add(a.cache_write_tokens, b.cache_write_tokens),
        cost_usd: usd,
    }
}
