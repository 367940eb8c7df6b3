//! `opencode-cloud usage`: what sessions used, by time and by parts.

use std::collections::BTreeMap;

use clap::ValueEnum;
use client::{Client, ClientOptions, parsed};
use domain::TimestampMs;
use reqwest::Url;
use serde::Deserialize;

use crate::CliError;
use crate::output::Screen;
use crate::render::printable;
use crate::table::fitted;

/// Arguments of `usage`.
#[derive(Debug, clap::Args)]
pub struct UsageArgs {
    /// The first day, such as `2026-11-01`; 30 days up to today without it
    #[arg(long, value_name = "DAY")]
    pub from: Option<String>,
    /// The day after the last one
    #[arg(long, value_name = "DAY")]
    pub to: Option<String>,
    /// The steps, in UTC
    #[arg(long, value_enum, default_value = "day")]
    pub step: Step,
    /// Divide by these, such as `model` or `person,project`
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub by: Vec<Part>,
    /// Show calls of tools instead, or how turns ended
    #[arg(long, value_enum, default_value = "work")]
    pub of: Of,
    /// Select, such as `model=gpt-5` (may be repeated)
    #[arg(long = "where", value_name = "PART=VALUE", value_parser = filter)]
    pub only: Vec<(Part, String)>,
    /// Compare with the time of the same length before
    #[arg(long)]
    pub compare: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print CSV
    #[arg(long)]
    pub csv: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

/// The steps of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Step {
    Hour,
    Day,
    Week,
    Month,
    /// The whole time at once
    All,
}

/// The thing that is summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Of {
    Work,
    Tools,
    Ends,
}

/// One thing by which usage is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    Person,
    Project,
    Agent,
    Provider,
    Model,
    Tool,
    Outcome,
    Code,
}

fn filter(text: &str) -> Result<(Part, String), String> {
    let (part, value) =
        text.split_once('=').ok_or("a selection is like model=gpt-5 or person=key_1")?;
    Ok((Part::from_str(part, false)?, value.to_owned()))
}

/// The word of a value, as the service knows it.
fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |word| word.get_name().to_owned())
}

#[derive(Debug, Deserialize)]
struct Answer {
    by: Vec<String>,
    rows: Vec<Row>,
    previous: Option<Previous>,
    #[serde(default)]
    names: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Previous {
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    start: TimestampMs,
    keys: BTreeMap<String, String>,
    people: Option<i64>,
    sums: BTreeMap<String, i64>,
}

impl Row {
    /// Whether a table of work shows more than zeros of it. Sessions, which it does not show, belong to no model.
    fn is_seen(&self) -> bool {
        let shown = ["prompts", "turns", "input_tokens", "output_tokens", "cost_nanos"];
        shown.iter().any(|name| self.sums.get(*name).is_some_and(|sum| *sum != 0))
    }
}

/// Runs `usage` and returns its exit code.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn execute(args: UsageArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let client = Client::new(&args.client)?;
    let path = path(&args, args.csv);
    if args.csv {
        let text = client.get_text(&path, "usage").await?;
        screen.out.write(text.as_bytes())?;
        return Ok(0);
    }
    let answer = client.get_json(&path, "usage").await?;
    if args.json {
        screen.out.line(&answer.to_string())?;
        return Ok(0);
    }
    let answer: Answer = parsed(&answer, "usage")?;
    if answer.rows.is_empty() && answer.previous.as_ref().is_none_or(|it| it.rows.is_empty()) {
        screen.out.say("nothing was used in this time")?;
        return Ok(0);
    }
    let mut shown = lines(args.of, args.step, &answer.by, &answer.names, &answer.rows);
    shown.push(total(args.of, "total", &answer.rows));
    if let Some(previous) = &answer.previous {
        shown.push(total(args.of, "before", &previous.rows));
    }
    screen.out.write(fitted(&shown, screen.out.width()).as_bytes())?;
    Ok(0)
}

/// The path with its query.
fn path(args: &UsageArgs, csv: bool) -> String {
    let mut url = Url::parse("http://service/platform/usage").expect("a URL");
    {
        let mut query = url.query_pairs_mut();
        query.append_pair("of", &word(&args.of)).append_pair("step", &word(&args.step));
        for (name, value) in [("from", &args.from), ("to", &args.to)] {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        if !args.by.is_empty() {
            let by: Vec<_> = args.by.iter().map(word).collect();
            query.append_pair("by", &by.join(","));
        }
        let mut filters: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (part, value) in &args.only {
            filters.entry(word(part)).or_default().push(value);
        }
        for (part, values) in filters {
            query.append_pair(&part, &values.join(","));
        }
        if args.compare {
            query.append_pair("compare", "previous");
        }
        query.append_pair("format", if csv { "csv" } else { "json" });
    }
    format!("{}?{}", url.path(), url.query().unwrap_or_default())
}

const COLUMNS: usize = 8;

/// The columns. The last ones are left out where not all fit.
fn heading(of: Of) -> [String; COLUMNS] {
    let names = match of {
        Of::Work => ["WHEN", "PART", "COST", "PROMPTS", "TURNS", "INPUT", "OUTPUT", "PEOPLE"],
        Of::Tools => ["WHEN", "PART", "CALLS", "TIME", "", "", "", ""],
        Of::Ends => ["WHEN", "PART", "TURNS", "TIME", "", "", "", ""],
    };
    names.map(str::to_owned)
}

fn lines(
    of: Of,
    step: Step,
    by: &[String],
    names: &BTreeMap<String, String>,
    rows: &[Row],
) -> Vec<[String; COLUMNS]> {
    let mut lines = vec![heading(of)];
    for row in rows.iter().filter(|row| by.is_empty() || of != Of::Work || row.is_seen()) {
        let named = by.iter().map(|key| match row.keys.get(key).map_or("", String::as_str) {
            "" => "-".to_owned(),
            id => printable::line(names.get(id).map_or(id, String::as_str), 80),
        });
        let part = named.collect::<Vec<_>>().join(" ");
        lines.push(line(of, when(row.start, step), part, std::slice::from_ref(row), row.people));
    }
    lines
}

fn total(of: Of, name: &str, rows: &[Row]) -> [String; COLUMNS] {
    line(of, name.to_owned(), String::new(), rows, None)
}

fn line(
    of: Of,
    when: String,
    part: String,
    rows: &[Row],
    people: Option<i64>,
) -> [String; COLUMNS] {
    let sum = |name: &str| -> i64 { rows.iter().filter_map(|row| row.sums.get(name)).sum::<i64>() };
    let none = String::new;
    match of {
        Of::Work => [
            when,
            part,
            dollars(sum("cost_nanos")),
            sum("prompts").to_string(),
            sum("turns").to_string(),
            sum("input_tokens").to_string(),
            sum("output_tokens").to_string(),
            people.map_or_else(none, |people| people.to_string()),
        ],
        Of::Tools => [
            when,
            part,
            sum("calls").to_string(),
            seconds(sum("run_ms")),
            none(),
            none(),
            none(),
            none(),
        ],
        Of::Ends => [
            when,
            part,
            sum("turns").to_string(),
            seconds(sum("turn_ms")),
            none(),
            none(),
            none(),
            none(),
        ],
    }
}

/// Formats billionths of a dollar.
pub(crate) fn dollars(nanos: i64) -> String {
    let (sign, nanos) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    // Four digits, as `session show` has them.
    let tenths_of_mills = nanos.saturating_add(50_000) / 100_000;
    format!("{sign}{}.{:04} USD", tenths_of_mills / 10_000, tenths_of_mills % 10_000)
}

fn seconds(ms: i64) -> String {
    format!("{}.{} s", ms / 1_000, ms % 1_000 / 100)
}

/// The beginning of a step. Steps are those of UTC, so it is shown so.
fn when(ms: TimestampMs, step: Step) -> String {
    let Ok(at) = jiff::Timestamp::from_millisecond(ms) else { return "-".to_owned() };
    let at = at.to_zoned(jiff::tz::TimeZone::UTC);
    let format = match step {
        Step::Hour => "%Y-%m-%d %H:00",
        Step::Day | Step::Week | Step::All => "%Y-%m-%d",
        Step::Month => "%Y-%m",
    };
    at.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        usage: UsageArgs,
    }

    fn args(line: &str) -> UsageArgs {
        let words = format!("usage {line} --url http://x:1 --key k");
        Line::try_parse_from(words.split(' ')).expect("arguments").usage
    }

    #[test]
    fn a_question_becomes_a_query() {
        let all = args(
            "--from 2026-11-01 --step month --by person,model --compare --where model=a/b&c --where model=d",
        );
        assert_eq!(
            path(&all, false),
            "/platform/usage?of=work&step=month&from=2026-11-01&by=person%2Cmodel&model=a%2Fb%26c%2Cd\
             &compare=previous&format=json"
        );
        let wrong = Line::try_parse_from(["usage", "--where", "team=x"]).expect_err("no such part");
        assert!(wrong.to_string().contains("team"), "{wrong}");
        assert!(Line::try_parse_from(["usage", "--json", "--csv"]).is_err());
    }

    #[test]
    fn a_table_has_names_totals_and_the_time_before() {
        let answer: Answer = serde_json::from_value(json!({
            "by": ["person"], "names": { "key_1": "laptop" },
            "rows": [
                { "start": 1_793_491_200_000_i64, "keys": { "person": "key_1" }, "people": 1,
                  "sums": { "prompts": 2, "turns": 3, "input_tokens": 10, "output_tokens": 4, "cost_nanos": 1_234_560_000 } },
                { "start": 1_793_577_600_000_i64, "keys": { "person": "" }, "people": 0, "sums": { "turns": 1 } },
                { "start": 1_793_664_000_000_i64, "keys": { "person": "" }, "people": 0, "sums": { "sessions": 5 } },
            ],
        }))
        .expect("an answer");
        let mut shown = lines(Of::Work, Step::Day, &answer.by, &answer.names, &answer.rows);
        shown.push(total(Of::Work, "total", &answer.rows));
        let text = fitted(&shown, None);
        assert!(
            text.contains("2026-11-01  laptop  1.2346 USD  2        3      10     4       1"),
            "{text}"
        );
        // Finding: readme 18. A terminal of 60 columns showed no cost.
        assert!(fitted(&shown, Some(60)).contains("1.2346 USD"), "{text}");
        assert!(text.contains("2026-11-02  -  ") && !text.contains("2026-11-03"), "{text}");
        assert!(text.lines().last().expect("a total").starts_with("total"), "{text}");
        assert_eq!(when(1_793_491_200_000, Step::Hour), "2026-11-01 00:00");
    }

    #[test]
    fn amounts_are_rounded_to_a_hundredth_of_a_cent() {
        assert_eq!((dollars(0), dollars(49_999)), ("0.0000 USD".into(), "0.0000 USD".into()));
        assert_eq!(
            (dollars(50_000), dollars(-1_000_000_000)),
            ("0.0001 USD".into(), "-1.0000 USD".into())
        );
    }
}
