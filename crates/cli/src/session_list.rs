//! The filters of `opencode-cloud session list`.

use std::path::PathBuf;

use clap::ValueEnum;
use client::{Client, SessionView, SessionsQuery, parsed};
use domain::{Clock, SystemClock, TimestampMs};
use serde_json::Value;

use crate::CliError;
use crate::session_cmd::state;

/// How many of the newest sessions the filter by state looks at.
const NEWEST: u32 = 1_000;

/// Arguments of `session list`.
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// Number of sessions at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    /// Only sessions that work in this directory, such as `.`
    #[arg(long, value_name = "PATH")]
    pub directory: Option<PathBuf>,
    /// Only sessions with this text in their title
    #[arg(long, value_name = "TEXT")]
    pub search: Option<String>,
    /// Only sessions in this state
    #[arg(long, value_enum)]
    pub state: Option<State>,
    /// Only sessions that changed since then: `30m`, `12h`, `7d`, or a date such as `2026-05-01`
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub since: Option<TimestampMs>,
    /// Archived sessions too
    #[arg(long)]
    pub archived: bool,
}

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum State {
    /// It has work
    Busy,
    /// It has none
    Idle,
    /// It has done nothing yet
    New,
    /// Its last work was completed
    Completed,
    /// Its last work failed
    Failed,
    /// Its last work was interrupted
    Interrupted,
}

impl State {
    fn has(self, session: &SessionView) -> bool {
        let word = state(session);
        match self {
            Self::Busy => session.busy,
            Self::Idle => !session.busy,
            Self::New => word == "new",
            Self::Completed => word == "completed",
            Self::Failed => word == "failed",
            Self::Interrupted => word == "interrupted",
        }
    }
}

/// Reads a time in the past: how long ago it was, or a date.
fn since(text: &str) -> Result<TimestampMs, String> {
    since_at(text, SystemClock::new().now_ms())
}

fn since_at(text: &str, now: TimestampMs) -> Result<TimestampMs, String> {
    let wrong = || "a time is like 30m, 12h, 7d, 2w or 2026-05-01".to_owned();
    if let Ok(date) = text.parse::<jiff::civil::Date>() {
        let day = date.to_zoned(jiff::tz::TimeZone::system()).map_err(|_| wrong())?;
        return Ok(day.timestamp().as_millisecond());
    }
    let unit = text.chars().last().ok_or_else(wrong)?;
    let minutes = match unit {
        'm' => 1,
        'h' => 60,
        'd' => 24 * 60,
        'w' => 7 * 24 * 60,
        _ => return Err(wrong()),
    };
    let number: u32 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    Ok(now - i64::from(number) * minutes * 60_000)
}

impl ListArgs {
    /// Returns whether some sessions are left out.
    pub(crate) fn has_filter(&self) -> bool {
        self.directory.is_some()
            || self.search.is_some()
            || self.state.is_some()
            || self.since.is_some()
    }

    /// Returns the sessions, newest first, as the service sends them.
    ///
    /// # Errors
    /// [`CliError`].
    pub(crate) async fn sessions(&self, client: &Client) -> Result<Value, CliError> {
        let directory = match &self.directory {
            None => None,
            Some(path) => {
                let shared = client.shares_paths().await?;
                let here = if shared { path.canonicalize() } else { std::path::absolute(path) };
                Some(here.unwrap_or_else(|_| path.clone()).to_string_lossy().into_owned())
            }
        };
        let query = SessionsQuery {
            archived: self.archived,
            search: self.search.clone(),
            since: self.since,
            directory,
            ..SessionsQuery::newest(if self.state.is_some() { NEWEST } else { self.limit })
        };
        let answer = client.sessions_json(&query).await?;
        let Some(state) = self.state else { return Ok(answer) };
        let mut shown = Vec::new();
        for session in answer.as_array().into_iter().flatten() {
            if state.has(&parsed(session, "the list of sessions")?) {
                shown.push(session.clone());
            }
        }
        shown.truncate(usize::try_from(self.limit).unwrap_or(usize::MAX));
        Ok(Value::Array(shown))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_time_is_told_as_people_say_it() {
        let now = 1_795_460_000_000;
        assert_eq!(since_at("30m", now), Ok(now - 30 * 60_000));
        assert_eq!(since_at("2w", now), Ok(now - 14 * 86_400_000));
        let day = since_at("2026-05-01", now).expect("a date");
        assert!(day < now && day > since_at("365d", now).expect("a time"));
        for bad in ["", "m", "3", "-1d", "1y", "yesterday", "\u{e9}"] {
            assert!(since_at(bad, now).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_session_is_in_the_states_that_it_has() {
        let session: SessionView = serde_json::from_value(json!({
            "id": "ses_1", "projectID": "prj_1", "directory": "/code", "title": "Fix the Parser", "agent": "build",
            "busy": false, "seq": 1, "outcome": "failed", "time": { "created": 5, "updated": 9 },
        }))
        .expect("a session");
        for (state, is_shown) in
            [(State::Failed, true), (State::Idle, true), (State::Busy, false), (State::New, false)]
        {
            assert_eq!(state.has(&session), is_shown, "{state:?}");
        }
    }
}
