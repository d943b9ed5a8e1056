//! When a limit ends, as providers say it: one parser for display and for scheduling.
//!
//! A time counts only right after words that lead up to one («resets», «try again at», «retry after», …), because
//! log lines and prose are full of other times. What is not understood gives `None`, never a guess: the caller
//! then probes with growing pauses. A time that has passed gives `now`, which means 'due': probe, do not run hot.

use std::sync::LazyLock;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, ZonedDateTime};
use regex::{Captures, Regex};

/// The longest wait that is believed; anything beyond is capped. Longest known window: a month.
pub const LONGEST: SignedDuration = SignedDuration::from_hours(31 * 24);

/// How far a clock time without a date may lie in the past and still be meant: notices are printed for a while
/// after their own reset time (33 minutes were seen).
const JUST_PAST: SignedDuration = SignedDuration::from_hours(2);

/// Finds the reset time in a message. `now` also carries the zone that times without one are in: the host's.
pub fn parse(text: &str, now: &ZonedDateTime) -> Option<Timestamp> {
    let of_leads = || LEAD.find_iter(text).find_map(|lead| stated(text.get(lead.end()..)?, now));
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
        r#"(?x) \b(?: resets? (?:\s+(?:at|in|on|after))? | (?:try|available|back)(?:\s+again)?\s+(?:at|in|on|after)
            | retry(?:[\s_-]?after|\s+(?:at|in)) | retryDelay | wait(?:\s+for)? | until ) ["':=\s]* "#,
    )
});

static DURATION: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"^(?:in\s+)?((?:\d+(?:\.\d+)?\s*[a-z]+\b,?\s*(?:and\s+)?|\d+(?:\.\d+)?[a-z]+)+)")
});

static PART: LazyLock<Regex> = LazyLock::new(|| regex(r"(\d+(?:\.\d+)?)\s*([a-z]+)"));

static DIGITS: LazyLock<Regex> = LazyLock::new(|| regex(r"^(\d{10}|\d{13})\b"));

static ISO: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"^\d{4}-\d\d-\d\d[T\s]\d\d:\d\d(?::\d\d(?:\.\d+)?)?\s*(?:Z\b|UTC\b|[+-]\d\d:?\d\d)")
});

static HTTP_DATE: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^(?:[a-z]{3,9},?\s+\d{1,2}[\s-][a-z]{3}[\s-]\d{2,4}\s+\d\d:\d\d:\d\d\s+GMT)"));

/// «Dec 2, 7pm (Europe/Moscow)», «Jun 11th, 2026 12:27 AM», «Oct 24», «3pm», «21:45 (UTC)».
static CLOCK: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?x) ^(?: (?P<month>[a-z]{3,9})\.?\s+ (?P<day>\d{1,2})(?:st|nd|rd|th)?\b (?:,?\s+(?P<year>\d{4})\b)? )?
            (?: (?:^|,?\s+(?:at\s+)?)
                (?P<hour>\d{1,2}) (?: :(?P<minute>\d\d) )? (?:\s*(?P<half>[ap])\.?m\b\.?)? )?
            (?: \s*\((?P<zone>[A-Za-z][A-Za-z0-9_+/-]*)\) | \s+(?P<utc>UTC|GMT)\b )?",
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
    if let Some(found) = ISO.find(text) {
        return iso(found.as_str());
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

fn iso(text: &str) -> Option<Timestamp> {
    let text = text.to_ascii_uppercase().replace("UTC", "Z");
    let squeezed: String = text.trim().split_whitespace().collect::<Vec<_>>().join(" ");
    squeezed.parse().or_else(|_| squeezed.replacen(' ', "T", 1).replace(' ', "").parse()).ok()
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
    let zone = match (found.name("zone"), found.name("utc")) {
        (Some(name), _) => zone(name.as_str())?,
        (None, Some(_)) => TimeZone::UTC,
        (None, None) => now.time_zone().clone(),
    };
    let date = match found.name("month") {
        Some(month) => Some((month_number(month.as_str())?, i8::try_from(number("day")?).ok()?)),
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
            if let Some(year) = number("year") {
                return at(Date::new(year, month, day).ok()?, time);
            }
            // The year that brings it nearest to now.
            let years = (today.year() - 1)..=(today.year() + 1);
            let candidates = years.filter_map(|year| at(Date::new(year, month, day).ok()?, time));
            candidates.min_by_key(|candidate| candidate.duration_since(now).abs())
        }
    }
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
    MONTHS.iter().position(|month| known(&month)).and_then(|index| i8::try_from(index + 1).ok())
}

/// A zone by its IANA name, from the database in the binary: a host without one must not lose a reset time.
fn zone(name: &str) -> Option<TimeZone> {
    static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
    ZONES.get(name).ok()
}
