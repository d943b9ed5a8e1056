//! Values as people write them: durations, sizes, counts, numbers, and limits that may be off.
//!
//! Error messages are phrases that read after the key's name: "must be …, not …".

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use jiff::{Span, SpanRelativeTo};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A length of time: text with units (`"5s"`, `"1h 30m"`, `"2d"`), as jiff's friendly format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub Duration);

/// A number of bytes: an integer, or text with a unit (`"100MB"` decimal, `"4MiB"` binary).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

/// A whole number, 0 or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count(pub u64);

/// A finite number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number(pub f64);

/// A value that may be off: `"none"` or `"auto"`, or zero where zero of it would mean nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit<T>(pub Option<T>);

/// What each written form of a scalar comes to.
trait Scalar: Sized {
    /// Reads after "must be".
    const RULE: &'static str;
    fn text(_: &str) -> Option<Self> {
        None
    }
    fn int(_: i64) -> Option<Self> {
        None
    }
    fn float(_: f64) -> Option<Self> {
        None
    }
    /// As a limit this means "no limit".
    fn is_nothing(&self) -> bool {
        false
    }
}

/// Longest time that is taken: timers must not overflow.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

// === impl Time ===

impl Scalar for Time {
    const RULE: &'static str = r#"a duration up to 10 years, such as "90s", "5m" or "1h 30m""#;

    fn text(text: &str) -> Option<Self> {
        if text.trim() == "0" {
            return Some(Time(Duration::ZERO));
        }
        // By way of a span, because a signed duration knows no days.
        let span: Span = text.trim().parse().ok()?;
        let length = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
        let length = Duration::try_from(length).ok()?;
        (length <= LONGEST).then_some(Time(length))
    }

    fn int(value: i64) -> Option<Self> {
        // Only zero needs no unit.
        (value == 0).then_some(Time(Duration::ZERO))
    }

    fn is_nothing(&self) -> bool {
        self.0.is_zero()
    }
}

// === impl Size ===

impl Scalar for Size {
    const RULE: &'static str = r#"a size in bytes or with a unit, such as "100MB" or "4MiB""#;

    fn text(text: &str) -> Option<Self> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let factor: u64 = match unit.trim_start() {
            "" | "B" => 1,
            "kB" | "KB" => 1000,
            "MB" => 1000_u64.pow(2),
            "GB" => 1000_u64.pow(3),
            "TB" => 1000_u64.pow(4),
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "TiB" => 1 << 40,
            _ => return None,
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).filter(|bytes| i64::try_from(*bytes).is_ok()).map(Size);
        }
        let bytes = number.parse::<f64>().ok()? * factor as f64;
        // Above 2^53 a float no longer counts single bytes.
        (bytes.is_finite() && bytes <= (1_u64 << 53) as f64).then_some(Size(bytes as u64))
    }

    fn int(value: i64) -> Option<Self> {
        u64::try_from(value).ok().map(Size)
    }

    fn is_nothing(&self) -> bool {
        self.0 == 0
    }
}

// === impl Count ===

impl Scalar for Count {
    const RULE: &'static str = "a whole number of at least 0";

    fn int(value: i64) -> Option<Self> {
        u64::try_from(value).ok().map(Count)
    }

    fn is_nothing(&self) -> bool {
        self.0 == 0
    }
}

// === impl Number ===

impl Scalar for Number {
    const RULE: &'static str = "a number";

    fn int(value: i64) -> Option<Self> {
        Some(Number(value as f64))
    }

    fn float(value: f64) -> Option<Self> {
        value.is_finite().then_some(Number(value))
    }
}

// === reading ===

struct Reader<T>(PhantomData<T>);
struct LimitReader<T>(PhantomData<T>);

impl<T: Scalar> Visitor<'_> for Reader<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::RULE)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::text(text).ok_or_else(|| E::custom(format_args!("must be {}, not {text:?}", T::RULE)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        T::int(value).ok_or_else(|| E::custom(format_args!("must be {}, not {value}", T::RULE)))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        T::float(value).ok_or_else(|| E::custom(format_args!("must be {}, not {value}", T::RULE)))
    }
}

impl<T: Scalar> Visitor<'_> for LimitReader<T> {
    type Value = Limit<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, r#"{}, or "none""#, T::RULE)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Limit<T>, E> {
        if matches!(text, "none" | "auto") {
            return Ok(Limit(None));
        }
        limit(T::text(text)).ok_or_else(|| E::custom(format_args!("must be {self}, not {text:?}")))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Limit<T>, E> {
        limit(T::int(value)).ok_or_else(|| E::custom(format_args!("must be {self}, not {value}")))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Limit<T>, E> {
        limit(T::float(value)).ok_or_else(|| E::custom(format_args!("must be {self}, not {value}")))
    }
}

impl<T: Scalar> fmt::Display for LimitReader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expecting(f)
    }
}

fn limit<T: Scalar>(value: Option<T>) -> Option<Limit<T>> {
    value.map(|value| Limit(Some(value).filter(|value| !value.is_nothing())))
}

macro_rules! deserialize {
    ($($scalar:ty),*) => { $(
        impl<'de> Deserialize<'de> for $scalar {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Reader(PhantomData))
            }
        }

        impl<'de> Deserialize<'de> for Limit<$scalar> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(LimitReader(PhantomData))
            }
        }
    )* };
}

deserialize!(Time, Size, Count, Number);

#[cfg(test)]
mod tests {
    use super::*;
    use toml::Value;

    fn read<T: for<'de> Deserialize<'de>>(value: impl Into<Value>) -> Result<T, String> {
        T::deserialize(value.into()).map_err(|e| e.message().to_owned())
    }

    #[test]
    fn durations() {
        for (text, ms) in [
            ("5s", 5_000),
            ("250ms", 250),
            ("1h 30m", 5_400_000),
            ("1h30m", 5_400_000),
            ("90 minutes", 5_400_000),
            ("2d", 172_800_000),
            ("1w", 604_800_000),
            ("PT1M", 60_000),
            ("0", 0),
        ] {
            assert_eq!(read(text), Ok(Time(Duration::from_millis(ms))), "{text}");
        }
        for text in ["", "5", "five", "-5s", "5 parsecs", "1 month", "20y", "99999999w"] {
            let message = read::<Time>(text).unwrap_err();
            assert!(message.starts_with("must be a duration"), "{text}: {message}");
        }
        assert!(read::<Time>(5).unwrap_err().ends_with("not 5"));
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("100MB", 100_000_000),
            ("4MiB", 4 << 20),
            ("1 GiB", 1 << 30),
            ("1.5kB", 1500),
            ("512", 512),
            ("0", 0),
        ] {
            assert_eq!(read(text), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "MB", "4M", "-1B", "1e3", "1..5MB", "99999999999TiB", "9999999.5TiB"] {
            assert!(read::<Size>(text).is_err(), "{text}");
        }
        assert_eq!(read(4096), Ok(Size(4096)));
    }

    #[test]
    fn limits_may_be_off() {
        assert_eq!(read("none"), Ok(Limit::<Time>(None)));
        assert_eq!(read("0s"), Ok(Limit::<Time>(None)));
        assert_eq!(read(0), Ok(Limit::<Count>(None)));
        assert_eq!(read(7), Ok(Limit(Some(Count(7)))));
        assert_eq!(read(0), Ok(Limit(Some(Number(0.0)))));
        assert_eq!(
            read::<Limit<Count>>(-1).unwrap_err(),
            r#"must be a whole number of at least 0, or "none", not -1"#
        );
        assert!(read::<Limit<Number>>(f64::NAN).is_err());
    }
}
