//! Figures of a bench, with what they have to reach.

use std::process::ExitCode;
use std::time::Duration;

/// A table of figures, printed line by line.
#[derive(Debug)]
pub struct Report {
    missed: usize,
}

impl Report {
    /// Starts a table.
    pub fn new(title: &str) -> Report {
        println!("\n{title}\n{:<58} {:>12} {:>14}", "", "figure", "target");
        Report { missed: 0 }
    }

    /// A figure that is there to compare with.
    pub fn shows(&mut self, name: &str, figure: f64, unit: &str) {
        println!("{name:<58} {:>12}", written(figure, unit));
    }

    /// A figure that must not pass `limit`.
    pub fn at_most(&mut self, name: &str, figure: f64, limit: f64, unit: &str) {
        self.judged(name, figure, limit, unit, '≤', figure <= limit);
    }

    /// A figure that must reach `limit`.
    pub fn at_least(&mut self, name: &str, figure: f64, limit: f64, unit: &str) {
        self.judged(name, figure, limit, unit, '≥', figure >= limit);
    }

    fn judged(&mut self, name: &str, figure: f64, limit: f64, unit: &str, sign: char, holds: bool) {
        let target = format!("{sign} {}", written(limit, unit));
        println!(
            "{name:<58} {:>12} {target:>14}  {}",
            written(figure, unit),
            if holds { "pass" } else { "FAIL" }
        );
        self.missed += usize::from(!holds);
    }

    /// Fails the bench when a figure missed its target.
    pub fn verdict(self) -> ExitCode {
        if self.missed > 0 {
            println!("\n{} figures missed their target", self.missed);
            return ExitCode::FAILURE;
        }
        ExitCode::SUCCESS
    }
}

fn written(figure: f64, unit: &str) -> String {
    let digits = if figure.abs() < 10.0 { 2 } else { 1 };
    format!("{figure:.digits$} {unit}")
}

/// The value below which `percent` of the samples lie (nearest rank); 0 without samples.
pub fn percentile(samples: &[f64], percent: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or_default()
}

/// The middle value.
pub fn median(samples: &[f64]) -> f64 {
    percentile(samples, 50.0)
}

/// In milliseconds.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
