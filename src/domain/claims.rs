//! What an agent's final answer claims.
//!
//! The rule: a line that is `LONGHAUL_DONE` alone claims completion; a line `LONGHAUL_BLOCKED: why` asks for a
//! person. White space around the line does not matter; anything else on it does. A claim is only a claim:
//! gates decide.

/// Claims of one final answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claims {
    /// Everything is done.
    pub done: bool,
    /// A person is needed, and why (may be empty).
    pub blocked: Option<String>,
}

const DONE: &str = "LONGHAUL_DONE";
const BLOCKED: &str = "LONGHAUL_BLOCKED:";

// === impl Claims ===

impl Claims {
    /// Reads the claims out of a final answer. The last `LONGHAUL_BLOCKED` counts.
    pub fn read(answer: &str) -> Self {
        let mut claims = Claims::default();
        for line in answer.lines().map(str::trim) {
            if line == DONE {
                claims.done = true;
            } else if let Some(why) = line.strip_prefix(BLOCKED) {
                claims.blocked = Some(why.trim().to_owned());
            }
        }
        claims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_of_its_own_claims() {
        assert!(Claims::read("All tests pass.\n\n  LONGHAUL_DONE \n").done);
        for not in ["", "say LONGHAUL_DONE when ready", "`LONGHAUL_DONE`", "LONGHAUL_DONE.", "longhaul_done"]
        {
            assert!(!Claims::read(not).done, "{not:?}");
        }
    }

    #[test]
    fn a_blocked_agent_says_why() {
        let claims = Claims::read("I tried.\r\nLONGHAUL_BLOCKED:  no staging password \r\n");
        assert_eq!(claims, Claims { done: false, blocked: Some("no staging password".into()) });
        assert_eq!(Claims::read("LONGHAUL_BLOCKED:").blocked.as_deref(), Some(""));
    }
}
