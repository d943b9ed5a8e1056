//! When a limit ends, as providers say it: one parser for display and for scheduling.
//!
//! A time counts only right after words that lead up to one («resets», «try again at», «retry after», …), because
//! log lines and prose are full of other times. What is not understood gives `None`, never a guess: the caller
//! then probes with growing pauses. A time that has passed gives `now`, which means 'due': probe, do not run hot.

use std::sync::LazyLock;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Span, Timestamp, ZonedDateTime};
use regex::{Captures, Regex};

/// The longest wait that is believed; anything beyond is capped. Longest known window: a month.
pub const LONGEST: SignedDuration = SignedDuration::from_hours(31 * 24);

/// How far a clock time without a date may lie in the past and still be meant: notices are printed for a while
/// after their own reset time (33 minutes were seen).
const JUST_PAST: SignedDuration = SignedDuration::from_hours(2);

/// Finds the reset time in a message. `now` also carries the zone that times without one are in: the host's.
pub fn parse(text: &str, now: &ZonedDateTime) -> Option<Timestamp> {
    let of_lead = |lead: Captures<'_>| {
        let rest = text.get(lead.get(0)?.end()..)?;
        // The unit is in the name of the header or field, where it has none of its own.
        let bare = lead.name("after").is_some() || lead[0].to_ascii_lowercase().contains("seconds");
        let seconds =
            || SECONDS.captures(rest)?[1].parse().ok().filter(|_| bare).map(SignedDuration::from_secs);
        stated(rest, now).or_else(|| now.timestamp().checked_add(seconds()?.min(LONGEST)).ok())
    };
    let of_leads = || LEAD.captures_iter(text).find_map(of_lead);
    let found =
        EPOCH_SUFFIX.captures(text).and_then(|found| epoch(found[1].parse().ok()?)).or_else(of_leads)?;
    Some(bounded(found, now.timestamp()))
}

/// Reads an HTTP `Retry-After`: whole seconds, or a date in one of the three formats of RFC 9110. Anything else
/// is as if absent.
pub fn retry_after(value: &str, now: Timestamp) -> Option<Timestamp> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        let seconds = value.parse().unwrap_or(i64::MAX).min(LONGEST.as_secs());
        return now.checked_add(SignedDuration::from_secs(seconds)).ok();
    }
    Some(bounded(http_date(value)?, now))
}

/// A time in Unix seconds, or in milliseconds when it is too large for seconds.
pub fn epoch(value: f64) -> Option<Timestamp> {
    if !value.is_finite() || value <= 0.0 {
        return None;
    }
    let milliseconds = if value > 1e11 { value } else { value * 1000.0 };
    Timestamp::from_millisecond(milliseconds as i64).ok()
}

/// `found`, not before `now` and not later than is believed.
pub fn bounded(found: Timestamp, now: Timestamp) -> Timestamp {
    let latest = now.checked_add(LONGEST).unwrap_or(Timestamp::MAX);
    found.clamp(now, latest)
}

/// «Claude AI usage limit reached|1753441200».
static EPOCH_SUFFIX: LazyLock<Regex> = LazyLock::new(|| regex(r"\|\s*(\d{10}|\d{13})\b"));

/// Words that lead up to a time.
static LEAD: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?x) \b(?: resets? (?:[\s_-]?(?:at|in|on|after)\b)? (?:[\s_-]?seconds\b)?
            | (?:try|available|back)(?:\s+again)?\s+(?:at|in|on|after)
            | (?P<after>retry[\s_-]?after) (?:[\s_-]?(?:seconds|secs)\b)? | retry(?:\s+(?:at|in)) | retryDelay
            | (?:regain|restores?)\s+access\s+(?:at|in|on) | wait(?:\s+for)? | until )
            ["':=\s]* (?:(?:about|around|approximately|roughly|less\ than|up\ to)\s+ | ~\s*)?"#,
    )
});

static DURATION: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"^(?:in\s+)?((?:\d+(?:\.\d+)?\s*[a-z]+\b,?\s*(?:and\s+)?|\d+(?:\.\d+)?[a-z]+)+)")
});

/// «an hour», «one minute».
static ONE: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^(?:in\s+)?(?:an?|one)\s+(second|minute|hour|day|week)\b"));

/// Whole seconds, of `Retry-After` alone.
static SECONDS: LazyLock<Regex> = LazyLock::new(|| regex(r"^(\d{1,9})(?:[^\w.:/-]|\.(?:\D|$)|$)"));

static PART: LazyLock<Regex> = LazyLock::new(|| regex(r"(\d+(?:\.\d+)?)\s*([a-z]+)"));

static DIGITS: LazyLock<Regex> = LazyLock::new(|| regex(r"^(\d{10}|\d{13})\b"));

static ISO: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?x) ^(?P<date>\d{4}-\d\d-\d\d) (?: (?:T|\s+at\s+|\s+) (?P<time>\d\d:\d\d(?::\d\d(?:\.\d+)?)?)
            \s* (?P<offset>Z\b|\(?UTC\b|GMT\b|[+-]\d\d:?\d\d)? | \s*(?:[.,;)·]|$) )",
    )
});

static HTTP_DATE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?x) ^(?: [a-z]{3,9},?\s+\d{1,2}[\s-][a-z]{3}[\s-]\d{2,4}\s+\d\d:\d\d:\d\d\s+GMT
            | [a-z]{3}\s+[a-z]{3}\s+\d{1,2}\s+\d\d:\d\d:\d\d\s+\d{4} )",
    )
});

/// «Dec 2, 7pm (Europe/Moscow)», «Jun 11th, 2026 12:27 AM», «2 December at 7pm», «Oct 24», «3pm», «21:45 (UTC)»,
/// «tomorrow at 9am», «Thu 9:00 PM».
static CLOCK: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?x) ^(?: (?P<near>today|tomorrow|(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?)\b
              | (?P<month>[a-z]{3,9})\.?\s+ (?P<day>\d{1,2})(?:st|nd|rd|th)?\b (?:,?\s+(?P<year>\d{4})\b)?
              | (?P<day2>\d{1,2})(?:st|nd|rd|th)?\s+(?P<month2>[a-z]{3,9})\b (?:,?\s+(?P<year2>\d{4})\b)? )?
            (?: (?:^|,?\s+(?:at\s+)?)
                (?P<hour>\d{1,2}) (?: :(?P<minute>\d\d)(?::\d\d)? )? (?:\s*(?P<half>[ap])\.?m\b\.?)? )?
            (?: \s*\((?P<zone>[A-Za-z][A-Za-z0-9_+:/-]*)\)
              | \s+(?-i:(?P<short>(?:UTC|GMT)[+-]\d{1,2}(?::?\d\d)?|[A-Z]{2,5}\b)) )?",
    )
});

#[expect(clippy::expect_used, reason = "constant patterns; the tests compile each of them")]
fn regex(pattern: &str) -> Regex {
    regex::RegexBuilder::new(pattern).case_insensitive(true).build().expect("a constant pattern")
}

/// A time at the start of `text`, in any of the known forms.
fn stated(text: &str, now: &ZonedDateTime) -> Option<Timestamp> {
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || "∙·:-—\"'".contains(c));
    if let Some(found) = DIGITS.captures(text) {
        return epoch(found[1].parse().ok()?);
    }
    if let Some(found) = &ISO.captures(text) {
        return iso(found, now);
    }
    if let Some(found) = HTTP_DATE.find(text) {
        return http_date(found.as_str());
    }
    if let Some(wait) = duration(text) {
        return now.timestamp().checked_add(wait.min(LONGEST)).ok();
    }
    clock(&CLOCK.captures(text)?, now)
}

/// «5 days 22 hours 11 minutes», «8h44m7s», «3.054s», «900ms».
fn duration(text: &str) -> Option<SignedDuration> {
    if let Some(one) = ONE.captures(text) {
        return duration(&format!("1 {}", &one[1]));
    }
    let whole = DURATION.captures(text)?;
    let mut seconds = None;
    for part in PART.captures_iter(&whole[1]) {
        let unit = match part[2].to_ascii_lowercase().as_str() {
            "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => 0.001,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86_400.0,
            "w" | "week" | "weeks" => 604_800.0,
            _ => break,
        };
        let number: f64 = part[1].parse().ok()?;
        seconds = Some(seconds.unwrap_or(0.0) + number * unit);
    }
    SignedDuration::try_from_secs_f64(seconds?.min(LONGEST.as_secs_f64())).ok()
}

/// A date, a time of that day, and an offset; on the host's clock when it has none.
fn iso(found: &Captures<'_>, now: &ZonedDateTime) -> Option<Timestamp> {
    let time = found.name("time").map_or("00:00", |time| time.as_str());
    let civil: DateTime = format!("{}T{time}", &found["date"]).parse().ok()?;
    let offset = found.name("offset").map(|offset| offset.as_str());
    let zone = match offset {
        None => now.time_zone().clone(),
        Some(offset) if offset.starts_with(['+', '-']) => fixed(offset)?,
        Some(_) => TimeZone::UTC,
    };
    civil.to_zoned_datetime(zone).ok().map(|date| date.timestamp())
}

/// «+02:00», «-0730», «+8».
fn fixed(offset: &str) -> Option<TimeZone> {
    let digits: String = offset.chars().filter(char::is_ascii_digit).collect();
    let (hours, minutes) = digits
        .split_at_checked(digits.len().saturating_sub(2))
        .filter(|_| digits.len() > 2)
        .unwrap_or((&digits, "0"));
    let minutes = hours.parse::<i32>().ok()? * 60 + minutes.parse::<i32>().ok()?;
    let seconds = if offset.starts_with('-') { -minutes * 60 } else { minutes * 60 };
    Some(TimeZone::fixed(jiff::tz::Offset::from_seconds(seconds).ok()?))
}

/// IMF-fixdate, RFC 850 or asctime.
fn http_date(text: &str) -> Option<Timestamp> {
    if let Ok(date) = jiff::fmt::rfc2822::parse(text) {
        return Some(date.timestamp());
    }
    let formats = ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];
    let civil = formats.iter().find_map(|format| DateTime::strptime(format, text).ok())?;
    civil.to_zoned_datetime(TimeZone::UTC).ok().map(|date| date.timestamp())
}

/// A clock time, a date, or both.
fn clock(found: &Captures<'_>, now: &ZonedDateTime) -> Option<Timestamp> {
    let number = |name: &str| found.name(name).and_then(|number| number.as_str().parse::<i16>().ok());
    let first = |names: [&str; 2]| names.iter().find_map(|name| number(name));
    let zone = match found.name("zone").or(found.name("short")) {
        Some(name) => zone(name.as_str())?,
        None => now.time_zone().clone(),
    };
    let date = match found.name("month").or(found.name("month2")) {
        Some(month) => Some((month_number(month.as_str())?, i8::try_from(first(["day", "day2"])?).ok()?)),
        None => None,
    };
    let time = match number("hour") {
        // A bare number is no time of day.
        Some(_) if found.name("minute").is_none() && found.name("half").is_none() => return None,
        Some(hour) => {
            Some(time_of_day(hour, number("minute").unwrap_or(0), found.name("half").map(|h| h.as_str()))?)
        }
        None => None,
    };
    let at = |date: Date, time: Time| {
        let zoned = DateTime::from_parts(date, time).to_zoned_datetime(zone.clone()).ok()?;
        Some(zoned.timestamp())
    };
    let today = now.timestamp().to_zoned_datetime(zone.clone()).date();
    let now = now.timestamp();
    if let Some(near) = found.name("near") {
        let day = near_day(near.as_str(), today)?;
        let candidate = at(day, time.unwrap_or(Time::midnight()))?;
        // This weekday's time is long past: next week's.
        let weekday = !["today", "tomorrow"].contains(&near.as_str().to_ascii_lowercase().as_str());
        let is_over = weekday && now.duration_since(candidate) > JUST_PAST;
        return if is_over { at(day.checked_add(Span::new().days(7)).ok()?, time?) } else { Some(candidate) };
    }
    match (date, time) {
        (None, None) => None,
        (None, Some(time)) => {
            // The nearest of yesterday, today, tomorrow that is not long past.
            let days = [today.yesterday().ok(), Some(today), today.tomorrow().ok()];
            let mut candidates = days.into_iter().flatten().filter_map(|day| at(day, time));
            candidates.find(|candidate| now.duration_since(*candidate) <= JUST_PAST)
        }
        (Some((month, day)), time) => {
            let time = time.unwrap_or(Time::midnight());
            if let Some(year) = first(["year", "year2"]) {
                return at(Date::new(year, month, day).ok()?, time);
            }
            // The year that brings it nearest to now.
            let years = (today.year() - 1)..=(today.year() + 1);
            let candidates = years.filter_map(|year| at(Date::new(year, month, day).ok()?, time));
            candidates.min_by_key(|candidate| candidate.duration_since(now).abs())
        }
    }
}

/// Today, tomorrow, or the next day of that name.
fn near_day(name: &str, today: Date) -> Option<Date> {
    const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let name = name.to_ascii_lowercase();
    let ahead = match name.as_str() {
        "today" => 0,
        "tomorrow" => 1,
        name => {
            let wanted = DAYS.iter().position(|day| name.starts_with(day))?;
            (i64::try_from(wanted).ok()? - i64::from(today.weekday().to_monday_zero_offset())).rem_euclid(7)
        }
    };
    today.checked_add(Span::new().days(ahead)).ok()
}

fn time_of_day(hour: i16, minute: i16, half: Option<&str>) -> Option<Time> {
    let hour = match half.map(|half| half.eq_ignore_ascii_case("p")) {
        None => hour,
        Some(_) if !(1..=12).contains(&hour) => return None,
        Some(afternoon) => hour % 12 + if afternoon { 12 } else { 0 },
    };
    Time::new(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0).ok()
}

fn month_number(name: &str) -> Option<i8> {
    const MONTHS: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let name = name.to_ascii_lowercase();
    let known = |month: &&str| month.starts_with(&name) || (name == "sept" && **month == *"september");
    MONTHS.iter().position(known).and_then(|index| i8::try_from(index + 1).ok())
}

/// Short names that mean one zone in messages to people; what others mean is anybody's guess.
const SHORT_NAMES: [(&str, &str); 18] = [
    ("PT", "America/Los_Angeles"),
    ("PST", "America/Los_Angeles"),
    ("PDT", "America/Los_Angeles"),
    ("MT", "America/Denver"),
    ("MST", "America/Denver"),
    ("MDT", "America/Denver"),
    ("CT", "America/Chicago"),
    ("CDT", "America/Chicago"),
    ("ET", "America/New_York"),
    ("EST", "America/New_York"),
    ("EDT", "America/New_York"),
    ("BST", "Europe/London"),
    ("CET", "Europe/Paris"),
    ("CEST", "Europe/Paris"),
    ("EET", "Europe/Helsinki"),
    ("EEST", "Europe/Helsinki"),
    ("JST", "Asia/Tokyo"),
    ("KST", "Asia/Seoul"),
];

/// A zone by its IANA name, from the database in the binary: a host without one must not lose a reset time.
fn zone(name: &str) -> Option<TimeZone> {
    static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
    if let Some(offset) =
        name.strip_prefix("UTC").or(name.strip_prefix("GMT")).filter(|rest| !rest.is_empty())
    {
        return fixed(offset);
    }
    let known = SHORT_NAMES.iter().find(|(short, _)| *short == name).map_or(name, |(_, long)| long);
    ZONES.get(known).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(now: &str) -> ZonedDateTime {
        at_in(now, "UTC")
    }

    fn at_in(now: &str, host: &str) -> ZonedDateTime {
        now.parse::<Timestamp>().unwrap().to_zoned_datetime(zone(host).unwrap())
    }

    fn reset(text: &str, now: &str) -> Option<String> {
        parse(text, &at(now)).map(|at| at.to_string())
    }

    #[test]
    fn known_wordings() {
        for (text, now, expected) in [
            // An epoch behind a bar, in seconds or milliseconds.
            ("Claude AI usage limit reached|1753441200", "2025-07-25T07:40:00Z", "2025-07-25T11:00:00Z"),
            ("Claude AI usage limit reached|1753441200000", "2025-07-25T07:40:00Z", "2025-07-25T11:00:00Z"),
            // A clock time in a zone, with and without summer time.
            (
                "5-hour limit reached ∙ resets 3pm (Europe/London)",
                "2026-07-01T10:00:00Z",
                "2026-07-01T14:00:00Z",
            ),
            (
                "5-hour limit reached ∙ resets 3pm (Europe/London)",
                "2026-12-01T10:00:00Z",
                "2026-12-01T15:00:00Z",
            ),
            (
                "Your limit will reset at 3pm (America/Bogota).",
                "2025-06-23T18:00:00Z",
                "2025-06-23T20:00:00Z",
            ),
            (
                "You've hit your limit · resets 1am (Europe/Oslo)",
                "2026-01-04T22:30:00Z",
                "2026-01-05T00:00:00Z",
            ),
            (
                "You've hit your session limit - resets 11:20am (Europe/Zurich)",
                "2026-08-01T06:00:00Z",
                "2026-08-01T09:20:00Z",
            ),
            (
                "You've hit your 5-hour limit · resets 9:45pm (UTC)",
                "2026-11-30T20:00:00Z",
                "2026-11-30T21:45:00Z",
            ),
            // Hours past: tomorrow's.
            (
                "Weekly limit reached · resets 10am (Asia/Seoul)",
                "2025-12-01T04:32:00Z",
                "2025-12-02T01:00:00Z",
            ),
            // With a date, without a year.
            (
                "Weekly limit reached · resets Dec 2, 7pm (Europe/Moscow) ·",
                "2025-11-29T12:00:00Z",
                "2025-12-02T16:00:00Z",
            ),
            (
                "You've hit your weekly limit · resets Dec 3, 5:12pm (UTC)",
                "2026-11-30T20:00:00Z",
                "2026-12-03T17:12:00Z",
            ),
            ("Opus weekly limit reached ∙ resets Oct 24", "2025-10-20T09:00:00Z", "2025-10-24T00:00:00Z"),
            ("resets Jan 2, 9am (America/New_York)", "2026-12-31T20:00:00Z", "2027-01-02T14:00:00Z"),
            ("resets Feb 29, 9am", "2028-02-27T20:00:00Z", "2028-02-29T09:00:00Z"),
            // Codex: in words, on the host's clock, with an ordinal.
            ("or try again in 5 days 22 hours 11 minutes.", "2026-01-01T00:00:00Z", "2026-01-06T22:11:00Z"),
            ("Try again in 11 seconds.", "2026-01-01T00:00:00Z", "2026-01-01T00:00:11Z"),
            (
                "or try again at 1:41 AM. Some(UsageLimitExceeded)",
                "2026-06-09T22:00:00Z",
                "2026-06-10T01:41:00Z",
            ),
            ("try again at Jun 11th, 2026 12:27 AM.", "2026-06-09T21:13:00Z", "2026-06-11T00:27:00Z"),
            ("try again at Jul 5th, 2026 8:19 PM.", "2026-07-01T00:00:00Z", "2026-07-05T20:19:00Z"),
            ("Please try again in 3.054s.", "2026-01-01T00:00:00Z", "2026-01-01T00:00:03.054Z"),
            // Gemini, Google and others.
            ("Your quota will reset after 8h44m7s.", "2026-01-01T00:00:00Z", "2026-01-01T08:44:07Z"),
            (
                "Your quota will reset after 5s.. Retrying after 6173ms...",
                "2026-01-01T00:00:00Z",
                "2026-01-01T00:00:05Z",
            ),
            (r#""retryDelay": "34.074824224s""#, "2026-01-01T00:00:00Z", "2026-01-01T00:00:34.074824224Z"),
            (r#""retryDelay":"900ms""#, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.9Z"),
            ("limit resets in 3 hours and 12 minutes", "2026-01-01T00:00:00Z", "2026-01-01T03:12:00Z"),
            ("resets at 2026-01-01T05:00:00Z", "2026-01-01T00:00:00Z", "2026-01-01T05:00:00Z"),
            ("resets at 2026-01-01 05:00:00+02:00", "2026-01-01T00:00:00Z", "2026-01-01T03:00:00Z"),
            ("reset: 1767250800", "2026-01-01T00:00:00Z", "2026-01-01T07:00:00Z"),
            ("Retry-After: Thu, 01 Jan 2026 07:28:00 GMT", "2026-01-01T00:00:00Z", "2026-01-01T07:28:00Z"),
            ("blocked until 21:45 (UTC)", "2026-01-01T20:00:00Z", "2026-01-01T21:45:00Z"),
            // Short names of zones, offsets, names of days, the day first, no zone.
            ("resets 3pm PDT", "2026-06-09T21:13:00Z", "2026-06-09T22:00:00Z"),
            ("resets 11:30pm (UTC+2)", "2026-06-09T21:13:00Z", "2026-06-09T21:30:00Z"),
            ("resets Thu 9:00 PM", "2026-06-09T21:13:00Z", "2026-06-11T21:00:00Z"),
            ("resets tomorrow at 9am", "2026-06-09T21:13:00Z", "2026-06-10T09:00:00Z"),
            ("resets 12 June at 09:00", "2026-06-09T21:13:00Z", "2026-06-12T09:00:00Z"),
            ("will reset at 2026-06-10 01:00:00", "2026-06-09T21:13:00Z", "2026-06-10T01:00:00Z"),
            ("regain access on 2026-07-01 at 00:00 UTC.", "2026-06-09T21:13:00Z", "2026-07-01T00:00:00Z"),
            ("resets in about 2 hours", "2026-06-09T21:13:00Z", "2026-06-09T23:13:00Z"),
            ("try again in less than a minute", "2026-06-09T21:13:00Z", "2026-06-09T21:14:00Z"),
            // A header's bare seconds, and its older dates.
            ("Retry-After: 120", "2026-06-09T21:13:00Z", "2026-06-09T21:15:00Z"),
            (r#""retry_after": 20}"#, "2026-06-09T21:13:00Z", "2026-06-09T21:13:20Z"),
            ("retry after Tue Jun  9 22:00:00 2026", "2026-06-09T21:13:00Z", "2026-06-09T22:00:00Z"),
            // A clock that jumps.
            ("resets 1:30am (Europe/London)", "2026-03-28T20:00:00Z", "2026-03-29T01:30:00Z"),
            ("resets 1:30am (Europe/London)", "2026-10-24T20:00:00Z", "2026-10-25T00:30:00Z"),
        ] {
            assert_eq!(reset(text, now).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn times_without_a_zone_are_on_the_hosts_clock() {
        let now = at_in("2026-06-09T22:00:00Z", "America/New_York");
        assert_eq!(parse("try again at 7:41 PM", &now).unwrap().to_string(), "2026-06-09T23:41:00Z");
    }

    #[test]
    fn just_past_is_due_now_and_not_tomorrow() {
        for (text, now) in [
            ("resets 12:50am (America/Los_Angeles)", "2026-07-04T08:00:00Z"),
            ("resets 10pm (UTC)", "2026-07-04T23:00:00Z"),
            ("resets 11:50pm (UTC)", "2026-07-05T00:20:00Z"),
            ("resets Jul 4, 9pm (UTC)", "2026-07-04T23:00:00Z"),
            ("resets Dec 31, 11pm (UTC)", "2027-01-01T00:30:00Z"),
            ("usage limit reached|1753441200", "2026-07-04T08:00:00Z"),
            ("reset after 0s", "2026-07-04T08:00:00Z"),
        ] {
            let now = at(now);
            assert_eq!(parse(text, &now), Some(now.timestamp()), "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_gives_nothing() {
        for text in [
            "",
            "or wait for limits to reset (every 5h and every week.)",
            "try again at 10 de jul. de 2026, 11:52.",
            "2026-11-30T19:43:07.686587Z ERROR codex_core::tools::router: error=unsupported call",
            "Retrying after 6173ms...",
            "Retrying in 4 seconds… (attempt 4/10)",
            "This request would exceed your account's rate limit. Please try again later.",
            "resets 3pm (Mars/Olympus)",
            "resets 13pm",
            "resets 0am",
            "resets 25:00",
            "resets 7",
            "resets 3pm (IST)",
            "Retry-After: -3",
            "Retry-After: 1.5",
            "try again at 12.06.2026 10:00",
            "resets Feb 30, 9am",
            "resets Foo 3, 9am",
            "reset the branch and try again in the morning",
            "see lines 418-429",
        ] {
            assert_eq!(reset(text, "2026-06-09T21:13:00Z"), None, "{text}");
        }
    }

    #[test]
    fn absurd_values_are_capped() {
        for text in [
            "try again in 99999 days",
            "reset|9999999999",
            "resets Jan 1, 2999 3pm",
            "try again in 9e9 hours",
        ] {
            let now = at("2026-06-09T21:13:00Z");
            if let Some(found) = parse(text, &now) {
                assert!(found.duration_since(now.timestamp()) <= LONGEST, "{text}: {found}");
            }
        }
        assert_eq!(epoch(f64::NAN), None);
        assert_eq!(epoch(-5.0), None);
        assert_eq!(epoch(1e300), None);
    }

    #[test]
    fn retry_after_takes_seconds_and_the_three_dates() {
        let now: Timestamp = "2026-10-21T07:26:00Z".parse().unwrap();
        for (value, seconds) in [
            ("120", Some(120)),
            ("0", Some(0)),
            ("Wed, 21 Oct 2026 07:28:00 GMT", Some(120)),
            ("Wednesday, 21-Oct-26 07:28:00 GMT", Some(120)),
            ("Wed Oct 21 07:28:00 2026", Some(120)),
            ("Wed, 21 Oct 2015 07:28:00 GMT", Some(0)),
            ("99999999999", Some(LONGEST.as_secs())),
            ("99999999999999999999999", Some(LONGEST.as_secs())),
            ("-3", None),
            ("1.5", None),
            ("1000abc", None),
            ("", None),
            ("Wed, 99 Foo", None),
        ] {
            let found = retry_after(value, now).map(|at| at.duration_since(now).as_secs());
            assert_eq!(found, seconds, "{value:?}");
        }
    }

    proptest! {
        /// Whatever a provider prints: no panic, and never before now or beyond the longest wait.
        #[test]
        fn any_text_is_bounded(lead in "(resets |try again (at|in) |retry after |until |\\|)?", rest in "\\PC{0,40}", mixed in "[0-9a-zA-Z:., |()/-]{0,40}") {
            let now = at("2026-06-09T21:13:00Z");
            for text in [format!("{lead}{rest}"), format!("{lead}{mixed}")] {
                if let Some(found) = parse(&text, &now) {
                    prop_assert!(found >= now.timestamp());
                    prop_assert!(found.duration_since(now.timestamp()) <= LONGEST);
                }
            }
            let _ = retry_after(&rest, now.timestamp());
        }

        /// A stated duration is the sum of its parts.
        #[test]
        fn durations_add_up(days in 0u32..20, hours in 0u32..24, minutes in 0u32..60, seconds in 0u32..60) {
            let now = at("2026-06-09T21:13:00Z");
            let expected = i64::from(((days * 24 + hours) * 60 + minutes) * 60 + seconds);
            for text in [
                format!("try again in {days} days {hours} hours {minutes} minutes {seconds} seconds."),
                format!("will reset after {days}d{hours}h{minutes}m{seconds}s."),
                format!("resets in {days} days, {hours} hrs, {minutes} min and {seconds} sec"),
            ] {
                let found = parse(&text, &now).unwrap().duration_since(now.timestamp()).as_secs();
                prop_assert_eq!(found, expected, "{}", text);
            }
        }
    }
}
