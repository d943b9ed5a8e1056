//! Times, sizes and money for people.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::output::plain;

/// A length of time in its two largest units: `0s`, `12s`, `3m 20s`, `2d 4h`.
pub fn duration(time: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let seconds = time.as_secs();
    let first = UNITS.iter().position(|(size, _)| seconds >= *size).unwrap_or(UNITS.len() - 1);
    let mut left = seconds;
    let mut text = String::new();
    for (size, unit) in UNITS.iter().skip(first).take(2) {
        let count = left / size;
        left %= size;
        if count > 0 || text.is_empty() {
            let gap = if text.is_empty() { "" } else { " " };
            // Writing to a string cannot fail.
            let _ = write!(text, "{gap}{count}{unit}");
        }
    }
    text
}

/// A short length of time: `40ms`, `2.4s`, `12s`.
pub fn short_duration(milliseconds: u64) -> String {
    match milliseconds {
        0..1000 => format!("{milliseconds}ms"),
        1000..10_000 => format!("{}.{}s", milliseconds / 1000, milliseconds % 1000 / 100),
        _ => duration(Duration::from_millis(milliseconds)),
    }
}

/// From `from` to `to`; `0s` when the clock stepped back.
pub fn between(from: Timestamp, to: Timestamp) -> String {
    duration(Duration::try_from(to.duration_since(from)).unwrap_or_default())
}

/// A time of day, with the day when it is not within half a day of `now`.
pub fn time(at: Timestamp, zone: &TimeZone, now: Timestamp) -> String {
    const HALF_A_DAY: SignedDuration = SignedDuration::from_hours(12);
    let near = at.duration_since(now).abs() < HALF_A_DAY;
    let local = at.to_zoned_datetime(zone.clone());
    local.strftime(if near { "%H:%M:%S" } else { "%Y-%m-%d %H:%M" }).to_string()
}

/// A size with three digits, in decimal units as disks have them: `41 GB`.
pub fn bytes(size: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if size < 1000 {
        return format!("{size} B");
    }
    let mut value = size as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = usize::from(value < 9.95);
    format!("{value:.digits$} {}", UNITS.get(unit).unwrap_or(&"EB"))
}

/// US dollars: cents, and more digits for what is less than ten cents.
pub fn usd(dollars: f64) -> String {
    let small = dollars > 0.0 && dollars < 0.1;
    if small { format!("${dollars:.4}") } else { format!("${dollars:.2}") }
}

/// `1 message`, `2 messages`.
pub fn count(number: impl Into<u64>, thing: &str) -> String {
    let number = number.into();
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Anything as one line of at most `most` characters, without what could command a terminal.
pub fn one_line(text: &str, most: usize) -> String {
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let plain = plain(&joined);
    match plain.char_indices().nth(most) {
        Some(_) => plain.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        None => plain.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_units_are_enough() {
        let shown = |seconds| duration(Duration::from_secs(seconds));
        let cases = [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (200, "3m 20s"),
            (3600, "1h"),
            (3659, "1h"),
            (187_200, "2d 4h"),
        ];
        for (seconds, text) in cases {
            assert_eq!(shown(seconds), text);
        }
        assert_eq!([450, 2450, 61_000].map(short_duration), ["450ms", "2.4s", "1m 1s"]);
    }

    #[test]
    fn days_are_told_only_when_they_matter() {
        let now: Timestamp = "2026-08-22T23:30:00Z".parse().unwrap();
        let shown = |text: &str| time(text.parse().unwrap(), &TimeZone::UTC, now);
        assert_eq!(shown("2026-08-23T04:00:05Z"), "04:00:05");
        assert_eq!(shown("2026-08-24T04:00:05Z"), "2026-08-24 04:00");
        assert_eq!(between(now, "2026-08-22T23:00:00Z".parse().unwrap()), "0s");
    }

    #[test]
    fn sizes_and_money() {
        for (size, text) in
            [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_600, "1.0 MB"), (41_000_000_000, "41 GB")]
        {
            assert_eq!(bytes(size), text);
        }
        assert_eq!([0.0, 0.0042, 1.239, 20.0].map(usd), ["$0.00", "$0.0042", "$1.24", "$20.00"]);
        assert_eq!([0_u64, 1, 2].map(|n| count(n, "message")), ["0 messages", "1 message", "2 messages"]);
    }

    #[test]
    fn one_line_is_one_line() {
        assert_eq!(one_line(" a\n\tb\x1b[2J ", 80), "a b\\u{1b}[2J");
        assert_eq!(one_line("äbcdef", 4), "äbc…");
        assert_eq!(one_line("abcd", 4), "abcd");
    }
}
