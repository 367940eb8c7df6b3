//! Prints figures as JSON lines on standard output, and notes for people on standard error.

use std::io::Write;

use anyhow::bail;
use serde_json::{Map, Value, json};

use crate::run::probe::Probe;

/// The expected bound of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mark {
    AtMost(f64),
    AtLeast(f64),
}

impl Mark {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
        }
    }
}

/// One measurement.
pub(crate) struct Figure {
    line: Map<String, Value>,
}

impl Figure {
    /// Returns a figure; `unit` is the unit of `value`.
    pub(crate) fn new(name: &str, value: f64, unit: &str) -> Self {
        let mut line = Map::new();
        line.insert("figure".into(), json!(name));
        line.insert("value".into(), json!(rounded(value)));
        line.insert("unit".into(), json!(unit));
        Self { line }
    }

    /// Adds the mark, and whether the figure meets it.
    pub(crate) fn mark(mut self, mark: Mark) -> Self {
        let value = self.line.get("value").and_then(Value::as_f64).unwrap_or(f64::NAN);
        let (name, bound) = match mark {
            Mark::AtMost(bound) => ("at_most", bound),
            Mark::AtLeast(bound) => ("at_least", bound),
        };
        self.line.insert(name.into(), json!(rounded(bound)));
        self.line.insert("met".into(), json!(mark.is_met(value)));
        self
    }

    /// Adds a number that explains the figure.
    pub(crate) fn with(mut self, name: &str, value: f64) -> Self {
        self.line.insert(name.into(), json!(rounded(value)));
        self
    }

    /// Adds a word that explains the figure.
    pub(crate) fn text(mut self, name: &str, value: &str) -> Self {
        self.line.insert(name.into(), json!(value));
        self
    }
}

/// Rounds to three decimals for small numbers, one for large ones: more would be noise.
fn rounded(value: f64) -> f64 {
    let scale = if value.abs() < 100.0 { 1000.0 } else { 10.0 };
    (value * scale).round() / scale
}

/// The speed of the machine during a run.
enum Pace {
    Unknown,
    Probed(Probe),
    /// The run does not wait for a disk.
    NoDisk,
}

/// A printer of figures with the probe of their run.
pub(crate) struct Reporter {
    pace: Pace,
}

impl Reporter {
    pub(crate) fn new() -> Self {
        Self { pace: Pace::Unknown }
    }

    /// Sets the probe for the following figures.
    pub(crate) fn probed(&mut self, probe: Probe) {
        self.pace = Pace::Probed(probe);
    }

    /// Declares that the following figures involve no disk, so that they have no probe.
    pub(crate) fn touches_no_disk(&mut self) {
        self.pace = Pace::NoDisk;
    }

    /// Prints one line. Refuses a figure before the probe, because it could not be compared with others.
    pub(crate) fn print(&mut self, figure: Figure) -> anyhow::Result<()> {
        let figure = match &self.pace {
            Pace::Unknown => bail!("a figure was to be printed before the probe"),
            Pace::Probed(probe) => figure
                .with("probe_p50_ms", probe.commit_p50_ms)
                .with("probe_p99_ms", probe.commit_p99_ms),
            Pace::NoDisk => figure,
        };
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let figure = figure.with("cores", cores as f64);
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, &Value::Object(figure.line))?;
        out.write_all(b"\n")?;
        out.flush()?;
        Ok(())
    }
}

/// Prints a note for people.
pub(crate) fn note(text: &str) {
    // If standard error cannot be written, there is nowhere left to say so.
    let _unwritable = writeln!(std::io::stderr(), "load-tests: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_says_whether_it_is_met() {
        let figure = Figure::new("x", 2.0, "ms").mark(Mark::AtMost(1.9999));
        assert_eq!(figure.line["met"], json!(false));
        assert_eq!(figure.line["at_most"], json!(2.0));
        let figure = Figure::new("x", 3.0, "1/s").mark(Mark::AtLeast(3.0));
        assert_eq!(figure.line["met"], json!(true));
    }
}
