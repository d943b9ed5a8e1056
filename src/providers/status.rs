//! HTTP statuses: what they mean, and where words tell one.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::definition::OutcomeKind;

/// What an HTTP status means when nothing else says more.
pub fn status_outcome(status: u16) -> Option<OutcomeKind> {
    match status {
        401 | 403 | 407 => Some(OutcomeKind::AuthFailed),
        402 => Some(OutcomeKind::QuotaExhausted),
        408 => Some(OutcomeKind::NetworkDown),
        413 => Some(OutcomeKind::ContextOverflow),
        429 => Some(OutcomeKind::RateLimited),
        500..=599 => Some(OutcomeKind::Overloaded),
        _ => None,
    }
}

/// The status that words tell, and where they do: a number alone is none, since lines, ports and sizes are
/// numbers, too. It stands behind a word for it, or before its own reason phrase.
pub fn status_in_words(text: &str) -> Option<(u16, Range<usize>)> {
    let found = STATUS.captures(text)?;
    let number = found.iter().skip(1).flatten().next()?;
    Some((number.as_str().parse().ok()?, found.get(0)?.range()))
}

#[expect(clippy::expect_used, reason = "a constant pattern; the tests compile it")]
static STATUS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"(?xi)
          \b(?: api\s+error | error\s+code | unexpected\s+status | last\s+status | status(?:[\s_]?code)?
              | request\s+(?:rejected|failed) | http(?:\s+(?:status|error)|/\d(?:\.\d)?)? | code )
            \b ["']? \s?[:=]? \s? \(? ([45]\d\d)\b
        | \b error:\s ([45]\d\d) (?: \s*[:{] | \s+-\s | $ )
        | (?:^|[\s"'(:]) ([45]\d\d) [\s:-]+ (?: too\s+many\s+requests | unauthorized | forbidden | payment\s+required
              | internal\s+server\s+error | bad\s+gateway | service\s+unavailable | gateway\s+time-?out
              | request\s+entity\s+too\s+large | overloaded | client\s+error | server\s+error
              | (?:resource|quota)\s+(?:has\s+been\s+)?(?:exhausted|exceeded) )\b"#,
    )
    .expect("a constant pattern")
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_needs_words_around_it() {
        for (text, status) in [
            ("API Error: 429 {\"type\":\"error\"}", Some(429)),
            ("API Error (529 {\"type\"", Some(529)),
            ("Error code: 401 - {'error'", Some(401)),
            ("unexpected status 503 Service Unavailable: x", Some(503)),
            ("API Error: Request rejected (429) · rate limited", Some(429)),
            ("HTTP/1.1 429 Too Many Requests", Some(429)),
            ("no room (HTTP 429)", Some(429)),
            ("\"code\": 503,", Some(503)),
            ("Error: 402 {\"error\"", Some(402)),
            ("401 Unauthorized", Some(401)),
            ("HTTPError: 502 Server Error: Bad Gateway", Some(502)),
            ("see hoge_spec.rb:418-429", None),
            ("529 bytes", None),
            ("listening on :5290", None),
            ("maps 429, 503 and 529 to RetryLater", None),
            ("lines 401 to 429", None),
            ("error: 429 is not a multiple of 8", None),
        ] {
            assert_eq!(status_in_words(text).map(|found| found.0), status, "{text}");
        }
    }
}
