//! The result of one look.

use serde::Serialize;

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// As it should be.
    Ok,
    /// A session can run, with less.
    Warn,
    /// A session cannot run, or not for long.
    Fail,
}

/// The result of one look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    /// What was looked at.
    pub(super) name: String,
    /// How it is.
    pub(super) verdict: Verdict,
    /// What was found.
    pub(super) detail: String,
    /// What to do about it.
    pub(super) advice: Option<String>,
}

// === impl Check ===

impl Check {
    pub(super) fn ok(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Check { name: name.into(), verdict: Verdict::Ok, detail: detail.into(), advice: None }
    }

    pub(super) fn warn(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Check { verdict: Verdict::Warn, ..Check::ok(name, detail) }
    }

    pub(super) fn fail(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Check { verdict: Verdict::Fail, ..Check::ok(name, detail) }
    }

    /// With a way out.
    pub(super) fn advised(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}
