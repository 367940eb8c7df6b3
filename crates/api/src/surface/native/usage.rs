//! Questions about usage, for people who pay for it: sums of a time, in steps and parts, as JSON or CSV.

use std::ops::Range;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use domain::{TimestampMs, Word};
use http::header::{ACCEPT, CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::Deserialize;
use store::{MAX_USAGE_ROWS, UsageKey, UsageOf, UsageQuery, UsageStep, UsageTable};

use crate::ApiState;
use crate::error::ApiError;
use crate::surface::extract::{CanAdminister, Params};
use crate::text::{plain, shown};
use crate::view::{UsageView, csv};

const HOUR: TimestampMs = 3_600_000;
const DAY: TimestampMs = 24 * HOUR;
/// The longest time of an answer, and of one in hours.
const MOST_DAYS: TimestampMs = 400;
const MOST_DAYS_IN_HOURS: TimestampMs = 14;
/// The time of a question that names none.
const DAYS: TimestampMs = 30;
/// The most parts at once.
const MOST_KEYS: usize = 3;
/// The most values of one filter.
const MOST_VALUES: usize = 50;

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct UsageParams {
    /// `work` (as without it: sessions, prompts, turns, tokens, costs, lines), `tools` (calls of tools) or `ends` (turns by
    /// their outcome).
    of: Option<String>,
    /// The beginning: a day of UTC (`2026-11-01`) or milliseconds since 1970. 30 days before `to` without it.
    from: Option<String>,
    /// The end, which is not part of the time. Now without it.
    to: Option<String>,
    /// The steps, in UTC: `hour`, `day` (as without it), `week`, `month` or `all`.
    step: Option<String>,
    /// The parts, separated by commas: of `person`, `project`, `agent`, `provider` and `model`; of `tool` and `outcome` with
    /// `of=tools`; of `provider`, `model`, `outcome` and `code` with `of=ends`.
    by: Option<String>,
    /// Only of these people, separated by commas. The other filters are alike.
    person: Option<String>,
    project: Option<String>,
    agent: Option<String>,
    provider: Option<String>,
    model: Option<String>,
    tool: Option<String>,
    outcome: Option<String>,
    code: Option<String>,
    /// `previous`: also the time of the same length before.
    compare: Option<String>,
    /// `json` or `csv`. Without it the header `Accept` decides.
    format: Option<String>,
}

/// An answer as JSON or as CSV.
#[derive(Debug)]
pub(crate) enum UsageReply {
    Json(Box<UsageView>),
    Csv(String),
}

impl IntoResponse for UsageReply {
    fn into_response(self) -> Response {
        match self {
            Self::Json(view) => axum::Json(view).into_response(),
            Self::Csv(text) => {
                let kind = HeaderValue::from_static("text/csv; charset=utf-8; header=present");
                let name = HeaderValue::from_static("attachment; filename=\"usage.csv\"");
                ([(CONTENT_TYPE, kind), (CONTENT_DISPOSITION, name)], text).into_response()
            }
        }
    }
}

pub(crate) async fn show(
    access: CanAdminister,
    State(state): State<ApiState>,
    headers: HeaderMap,
    Params(params): Params<UsageParams>,
) -> Result<UsageReply, ApiError> {
    let is_csv = wants_csv(params.format.as_deref(), &headers)?;
    let query = params.query(state.clock().now_ms())?;
    let table = query.table().ok_or_else(|| unanswerable(&query))?;
    let answer = state.store().usage(access.org, query.clone(), table).await?;
    if answer.rows.len() > MAX_USAGE_ROWS {
        return Err(ApiError::Invalid(format!(
            "the answer has more than {MAX_USAGE_ROWS} rows: ask for a shorter time, larger steps or fewer parts"
        )));
    }
    let valued = |key: UsageKey| -> Vec<String> {
        let Some(place) = query.by.iter().position(|by| *by == key) else { return Vec::new() };
        let mut values: Vec<_> = answer.rows.iter().map(|row| row.keys[place].clone()).collect();
        values.sort();
        values.dedup();
        values
    };
    let names =
        state.store().usage_names(access.org, valued(UsageKey::Person), valued(UsageKey::Project));
    let view = UsageView::of(&query, table, answer, names.await?);
    Ok(if is_csv { UsageReply::Csv(csv(&view)) } else { UsageReply::Json(Box::new(view)) })
}

fn wants_csv(format: Option<&str>, headers: &HeaderMap) -> Result<bool, ApiError> {
    match format {
        Some("csv") => Ok(true),
        Some("json") => Ok(false),
        Some(other) => {
            Err(ApiError::Invalid(format!("`format` is `json` or `csv`, not `{}`", shown(other))))
        }
        None => {
            let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
            Ok(accept.is_some_and(|accept| {
                let mut kinds = accept.split(',').map(|kind| kind.split(';').next());
                kinds.find_map(|kind| match kind.map(str::trim) {
                    Some("text/csv") => Some(true),
                    Some("application/json") => Some(false),
                    _ => None,
                }) == Some(true)
            }))
        }
    }
}

fn unanswerable(query: &UsageQuery) -> ApiError {
    if query.step == UsageStep::Hour && query.of != UsageOf::Work {
        return ApiError::invalid("`tools` and `ends` are kept by day: ask with `step=day`");
    }
    let keys: Vec<_> =
        UsageTable::keys_of(query.of).iter().map(|key| format!("`{}`", key.as_str())).collect();
    ApiError::Invalid(format!(
        "`of={}` is kept by {}: divide and select by these",
        query.of.as_str(),
        keys.join(", ")
    ))
}

/// Reads one of our words; `None` reads as the default.
fn word<W: Word + Default>(name: &str, text: Option<&str>) -> Result<W, ApiError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(W::default()) };
    read_word(name, text)
}

fn read_word<W: Word>(name: &str, text: &str) -> Result<W, ApiError> {
    W::read(text).ok_or_else(|| {
        let all: Vec<_> = W::ALL.iter().map(|word| format!("`{}`", word.as_str())).collect();
        ApiError::Invalid(format!("`{name}` has {}, not `{}`", all.join(", "), shown(text)))
    })
}

/// Times from 1970 to the year 9999, in milliseconds: sums of two of them are in range.
const TIMES: Range<TimestampMs> = 0..253_402_300_800_000;

/// Reads a day of UTC or milliseconds.
fn time(name: &str, text: &str) -> Result<TimestampMs, ApiError> {
    let day = || -> Option<TimestampMs> {
        let date: Date = text.parse().ok()?;
        Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond())
    };
    let instant = || Some(text.parse::<Timestamp>().ok()?.as_millisecond());
    let read = text.parse().ok().or_else(day).or_else(instant);
    read.filter(|ms| TIMES.contains(ms)).ok_or_else(|| {
        ApiError::Invalid(format!(
            "`{name}` is a day such as `2026-11-01`, or milliseconds since 1970, before the year 10000, not `{}`",
            shown(text)
        ))
    })
}

impl UsageParams {
    fn query(self, now: TimestampMs) -> Result<UsageQuery, ApiError> {
        let (of, step): (UsageOf, UsageStep) =
            (word("of", self.of.as_deref())?, word("step", self.step.as_deref())?);
        // The unit in which sums are kept.
        let unit = if step == UsageStep::Hour { HOUR } else { DAY };
        // Today is part of an answer that names no end.
        let to = self.to.as_deref().map(|text| time("to", text)).transpose()?;
        let to = to.unwrap_or(now).next_multiple(unit);
        let from = self.from.as_deref().map(|text| time("from", text)).transpose()?;
        let from = from.unwrap_or(to - DAYS.min(if unit == HOUR { 2 } else { DAYS }) * DAY);
        let from = from - from % unit;
        if from >= to {
            return Err(ApiError::invalid("`from` is before `to`"));
        }
        let most = if unit == HOUR { MOST_DAYS_IN_HOURS } else { MOST_DAYS };
        if to - from > most * DAY {
            return Err(ApiError::Invalid(format!(
                "`from` and `to` are at most {most} days apart with `step={}`",
                step.as_str()
            )));
        }
        let before = match self.compare.as_deref() {
            None | Some("") => None,
            Some("previous") => Some((from - (to - from)).max(0)),
            Some(other) => {
                let message = format!("`compare` is `previous`, not `{}`", shown(other));
                return Err(ApiError::Invalid(message));
            }
        };
        let mut by: Vec<UsageKey> = Vec::new();
        for text in self.by.as_deref().unwrap_or_default().split(',').filter(|it| !it.is_empty()) {
            let key = read_word("by", text)?;
            if !by.contains(&key) {
                by.push(key);
            }
        }
        if by.len() > MOST_KEYS {
            return Err(ApiError::Invalid(format!("`by` has at most {MOST_KEYS} parts")));
        }
        let only = self.only()?;
        Ok(UsageQuery { of, from, to, before, step, by, only })
    }

    fn only(self) -> Result<Vec<(UsageKey, String)>, ApiError> {
        let mut only = Vec::new();
        for (key, values) in [
            (UsageKey::Person, self.person),
            (UsageKey::Project, self.project),
            (UsageKey::Agent, self.agent),
            (UsageKey::Provider, self.provider),
            (UsageKey::Model, self.model),
            (UsageKey::Tool, self.tool),
            (UsageKey::Outcome, self.outcome),
            (UsageKey::Code, self.code),
        ] {
            let Some(values) = values else { continue };
            let values: Vec<_> = values.split(',').map(plain).collect();
            if values.len() > MOST_VALUES {
                return Err(ApiError::Invalid(format!(
                    "`{}` has at most {MOST_VALUES} values",
                    key.as_str()
                )));
            }
            only.extend(values.into_iter().map(|value| (key, value)));
        }
        Ok(only)
    }
}

/// Rounds a time up to a whole unit.
trait NextMultiple {
    fn next_multiple(self, unit: Self) -> Self;
}

impl NextMultiple for TimestampMs {
    fn next_multiple(self, unit: Self) -> Self {
        self + (unit - self % unit) % unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: TimestampMs = 1_795_293_590_000;
    const TODAY: TimestampMs = NOW - NOW % DAY;

    fn asked(params: UsageParams) -> UsageQuery {
        params.query(NOW).expect("a question")
    }

    #[test]
    fn a_question_without_a_time_ends_today() {
        let all = asked(UsageParams::default());
        assert_eq!((all.from, all.to, all.before), (TODAY - 29 * DAY, TODAY + DAY, None));
        let step = Some("hour".into());
        let hours = asked(UsageParams { step, ..UsageParams::default() });
        assert_eq!(hours.to - hours.from, 2 * DAY);
        assert!(hours.to > NOW && hours.to - NOW <= HOUR);
    }

    #[test]
    fn days_and_milliseconds_are_times() {
        let params = |from: &str| UsageParams {
            from: Some(from.into()),
            to: Some("2026-11-21".into()),
            compare: Some("previous".into()),
            ..UsageParams::default()
        };
        let by_day = asked(params("2026-11-19"));
        assert_eq!(asked(params("1795046400001")), by_day);
        assert_eq!(by_day.to - by_day.from, 2 * DAY);
        assert_eq!(by_day.before, Some(by_day.from - 2 * DAY));
        for (from, told) in [
            ("yesterday", "`from` is a day such as"),
            ("-1", "`from` is a day such as"),
            ("9223372036854775807", "before the year 10000"),
            ("2026-11-21", "`from` is before `to`"),
            ("2025-01-01", "at most 400 days apart"),
        ] {
            let error = params(from).query(NOW).expect_err("refused").to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn parts_that_are_not_kept_together_are_refused() {
        let params = |of: &str, by: &str, step: &str| UsageParams {
            of: Some(of.into()),
            by: Some(by.into()),
            step: Some(step.into()),
            ..UsageParams::default()
        };
        assert!(asked(params("work", "person,model", "day")).table().is_some());
        assert!(asked(params("tools", "tool,outcome", "day")).table().is_some());
        for (of, by, step, told) in [
            ("tools", "person", "day", "`of=tools` is kept by `tool`, `outcome`"),
            ("ends", "code", "hour", "ask with `step=day`"),
        ] {
            let query = asked(params(of, by, step));
            assert_eq!(query.table(), None);
            let told_to = unanswerable(&query).to_string();
            assert!(told_to.contains(told), "{told_to}");
        }
        let error = params("work", "team", "day").query(NOW).expect_err("no such part").to_string();
        assert!(error.starts_with("`by` has `person`, "), "{error}");
        let error = params("work", "person,model,agent,provider", "day").query(NOW);
        assert!(error.expect_err("too many").to_string().contains("at most 3"));
    }

    #[test]
    fn a_client_gets_csv_that_asks_for_it() {
        let of = |accept: &str| {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().expect("a value"))]);
            wants_csv(None, &headers).expect("an answer")
        };
        assert!(of("text/csv") && of("text/csv;q=0.9, */*"));
        assert!(!of("application/json, text/csv") && !of("*/*"));
        assert!(wants_csv(Some("csv"), &HeaderMap::new()).expect("an answer"));
        assert!(wants_csv(Some("xml"), &HeaderMap::new()).is_err());
    }
}
