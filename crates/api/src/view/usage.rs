//! Answers about usage, as JSON and as CSV.

use std::collections::BTreeMap;
use std::fmt::Write;

use domain::TimestampMs;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use store::{UsageAnswer, UsageNames, UsageQuery, UsageRow, UsageTable};

/// Sums of usage.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UsageView {
    /// The thing that is summed up.
    of: &'static str,
    /// The beginning, in milliseconds since 1970.
    from: TimestampMs,
    /// The end, which is not part of the time.
    to: TimestampMs,
    /// The steps, in UTC.
    step: &'static str,
    /// The parts.
    by: Vec<&'static str>,
    /// Up to when all that happened is in it; absent before anything was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<TimestampMs>,
    /// The names of the sums, in the order of a CSV.
    sums: &'static [&'static str],
    rows: Vec<UsageRowView>,
    /// The time before, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<PreviousView>,
    /// Names of people and directories of projects, by id, as far as they are known.
    names: BTreeMap<String, String>,
}

/// The sums of another time.
#[derive(Debug, Serialize, JsonSchema)]
struct PreviousView {
    from: TimestampMs,
    to: TimestampMs,
    rows: Vec<UsageRowView>,
}

/// The sums of a step and a part.
#[derive(Debug, Serialize, JsonSchema)]
struct UsageRowView {
    /// The beginning of the step.
    start: TimestampMs,
    /// The part, by its name in `by`.
    keys: BTreeMap<&'static str, String>,
    /// How many people wrote a prompt; absent where that is not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    people: Option<i64>,
    /// Costs are in billionths of a dollar.
    sums: BTreeMap<&'static str, i64>,
}

impl UsageView {
    pub(crate) fn of(
        query: &UsageQuery,
        table: UsageTable,
        answer: UsageAnswer,
        names: UsageNames,
    ) -> Self {
        let by: Vec<_> = query.by.iter().map(|key| key.as_str()).collect();
        let row = |row: UsageRow| UsageRowView {
            start: row.starts,
            keys: by.iter().copied().zip(row.keys).collect(),
            people: row.people,
            sums: table.sums.iter().copied().zip(row.sums).collect(),
        };
        let (earlier, now): (Vec<_>, Vec<_>) =
            answer.rows.into_iter().partition(|row| row.is_earlier);
        let previous = query.before.map(|from| PreviousView {
            from,
            to: query.from,
            rows: earlier.into_iter().map(row).collect(),
        });
        Self {
            of: query.of.as_str(),
            from: query.from,
            to: query.to,
            step: query.step.as_str(),
            as_of: answer.as_of,
            sums: table.sums,
            rows: now.into_iter().map(row).collect(),
            previous,
            names: names.0,
            by,
        }
    }
}

/// The same as CSV: a line for each row, and with another time a first column that tells them apart.
pub(crate) fn csv(view: &UsageView) -> String {
    let has_people = view.rows.iter().any(|row| row.people.is_some());
    let mut head: Vec<&str> = Vec::new();
    head.extend(view.previous.is_some().then_some("period"));
    head.push("start");
    head.extend(view.by.iter().copied());
    head.extend(has_people.then_some("people"));
    head.extend(view.sums.iter().copied());
    let mut text = head.join(",");
    text.push_str("\r\n");
    let mut lines = |period: &str, rows: &[UsageRowView]| {
        for row in rows {
            let mut cells: Vec<String> = Vec::new();
            cells.extend(view.previous.is_some().then(|| period.to_owned()));
            cells.push(instant(row.start));
            cells.extend(view.by.iter().map(|key| cell(row.keys.get(key).map_or("", |it| it))));
            cells.extend(has_people.then(|| row.people.unwrap_or(0).to_string()));
            let sum = |name: &&str| row.sums.get(name).copied().unwrap_or(0).to_string();
            cells.extend(view.sums.iter().map(sum));
            // Writing to a text cannot fail.
            let _ = write!(text, "{}\r\n", cells.join(","));
        }
    };
    lines("current", &view.rows);
    if let Some(previous) = &view.previous {
        lines("previous", &previous.rows);
    }
    text
}

fn instant(ms: TimestampMs) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |time| time.to_string())
}

/// A text as RFC 4180 has it. One that a spreadsheet would take for a formula begins with an apostrophe.
fn cell(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_a_csv_are_data_and_no_formulas() {
        assert_eq!(cell("gpt-5"), "gpt-5");
        assert_eq!(cell("a, \"b\""), "\"a, \"\"b\"\"\"");
        assert_eq!(cell("=SUM(A1)"), "'=SUM(A1)");
        assert_eq!(cell("@x,y"), "\"'@x,y\"");
    }
}
