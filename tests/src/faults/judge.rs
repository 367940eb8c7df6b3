//! Judges beyond the oracle: the clients' acknowledgements, the followers' events, the tools' real effects.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

use super::coverage::Sight;
use super::shared::{Shared, locked};
use super::workload::{EFFECTS, line_of};
use crate::settle::{events_of, eventually};
use crate::sql::superuser_url;
use crate::world::World;

/// Checks one session's whole log, its follower and its clients' acknowledgements.
pub(crate) fn judge_session(shared: &Shared, session: usize, log: &[Value]) {
    let id = &shared.sessions[session];
    let followed = &locked(&shared.followed[session]).events;
    if followed != log {
        let first = followed.iter().zip(log).position(|(one, other)| one != other);
        shared.violated(format!(
            "I5: the follower of {id} has {} events, the log {}; the first that differs: {first:?}",
            followed.len(),
            log.len()
        ));
    }
    let fates = PromptFates::of(log);
    for prompt in locked(&shared.acknowledged).iter().filter(|prompt| prompt.session == session) {
        if let Err(what) = fates.kept(&prompt.message) {
            shared.violated(format!("acknowledged {} of {id}: {what}", prompt.message));
        }
    }
    see(shared, log);
}

/// The fates of one session's prompts, from a single pass over its log.
pub(crate) struct PromptFates<'l> {
    admitted: HashMap<&'l str, Vec<i64>>,
    promoted: HashMap<&'l str, usize>,
    /// The number of the last event that durably stops earlier prompts.
    last_stop: i64,
}

impl<'l> PromptFates<'l> {
    pub(crate) fn of(log: &'l [Value]) -> Self {
        let mut fates =
            Self { admitted: HashMap::new(), promoted: HashMap::new(), last_stop: i64::MIN };
        for event in log {
            let seq = event["seq"].as_i64().unwrap_or(i64::MIN);
            let message = event["data"]["message"].as_str().unwrap_or_default();
            match event["type"].as_str().unwrap_or_default() {
                "prompt.admitted" => fates.admitted.entry(message).or_default().push(seq),
                "prompt.promoted" => *fates.promoted.entry(message).or_default() += 1,
                "interrupt.requested" => fates.last_stop = fates.last_stop.max(seq),
                "drain.ended" if event["data"]["outcome"] != "completed" => {
                    fates.last_stop = fates.last_stop.max(seq);
                }
                _ => {}
            }
        }
        fates
    }

    /// Proves that an acknowledged prompt was admitted once, and promoted once or durably stopped.
    pub(crate) fn kept(&self, message: &str) -> Result<(), String> {
        let admitted = self.admitted.get(message).map_or(&[][..], Vec::as_slice);
        let [admitted] = admitted else {
            return Err(format!("admitted {} times", admitted.len()));
        };
        match self.promoted.get(message).copied().unwrap_or_default() {
            0 if self.last_stop < *admitted => {
                Err("neither promoted nor stopped by anything".to_owned())
            }
            0 | 1 => Ok(()),
            times => Err(format!("promoted {times} times")),
        }
    }
}

/// Notes the paths of the service that the log shows.
fn see(shared: &Shared, log: &[Value]) {
    for event in log {
        let outcome = event["data"]["outcome"].as_str().unwrap_or_default();
        let sight = match (event["type"].as_str().unwrap_or_default(), outcome) {
            ("turn.settled", "interrupted") => Sight::TurnInterrupted,
            ("turn.settled", "cut") => Sight::ReplyCut,
            ("turn.settled", "lost") => Sight::TurnLost,
            ("tool.settled", "unknown") => Sight::OutcomeUnknown,
            ("retry.scheduled", _) => Sight::AttemptRetried,
            _ => continue,
        };
        shared.saw(sight);
    }
}

/// Compares the real effects in a Location with the calls in its sessions' logs: a body ran at most once, exactly
/// once if its call completed, never without a call, and no step was requested twice.
pub(crate) fn judge_effects(shared: &Shared, location: &Path, logs: &[&[Value]]) {
    let text = fs::read_to_string(location.join(EFFECTS)).unwrap_or_default();
    let mut ran: HashMap<&str, usize> = HashMap::new();
    for line in text.lines() {
        *ran.entry(line).or_default() += 1;
    }
    let mut called: HashSet<String> = HashSet::new();
    for log in logs {
        let settled: HashMap<&str, &str> = events_of(log, "tool.settled")
            .into_iter()
            .filter_map(|data| Some((data["call"].as_str()?, data["outcome"].as_str()?)))
            .collect();
        for data in events_of(log, "tool.called") {
            let intent = &data["intent"];
            let arguments = intent["arguments"].as_str().unwrap_or_default();
            let arguments: Value = serde_json::from_str(arguments).unwrap_or(Value::Null);
            let command = arguments["command"].as_str().unwrap_or_default();
            let (Some(line), Some(call)) = (line_of(command), intent["call"].as_str()) else {
                continue;
            };
            let times = ran.get(line).copied().unwrap_or(0);
            let outcome = settled.get(call).copied().unwrap_or("none");
            if times > 1 || (outcome == "completed" && times != 1) {
                shared.violated(format!("I8: {call} ({line}) is {outcome} and ran {times} times"));
            }
            if !called.insert(line.to_owned()) {
                shared.violated(format!("the call for {line} was made twice, again as {call}"));
            }
        }
    }
    for line in ran.keys().filter(|line| !called.contains(**line)) {
        shared.violated(format!("I8: `{line}` was done in {} by no call", location.display()));
    }
}

/// Checks the processes' logs, and what they left in the database.
pub(crate) async fn judge_processes(shared: &Shared, world: &World) -> Result<()> {
    for entry in fs::read_dir(world.data().join("logs"))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let bad = |line: &&str| line.contains("panicked") || line.contains("internal error");
        if let Some(line) = text.lines().find(bad) {
            shared.violated(format!("{} says: {line}", path.display()));
        }
    }
    let mut superuser = PgConnection::connect(&superuser_url(&world.data())?).await?;
    let (left,): (i64,) = sqlx::query_as(
        "SELECT count(*) FROM pg_stat_activity WHERE usename LIKE 'oc_%'
         AND state LIKE 'idle in transaction%' AND state_change < now() - interval '2 seconds'",
    )
    .fetch_one(&mut superuser)
    .await?;
    superuser.close().await?;
    if left > 0 {
        shared.violated(format!("{left} connections are left in the middle of a transaction"));
    }
    Ok(())
}

/// Checks that everything is counted in the sums of usage, also that whose rows of `session_change` a crash of Postgres took.
pub(crate) async fn judge_usage(shared: &Shared, world: &World) -> Result<()> {
    let mut superuser = PgConnection::connect(&superuser_url(&world.data())?).await?;
    let counted = eventually("all events are counted", 60, async || {
        let left: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM session_head h LEFT JOIN usage_through t ON t.incarnation = h.incarnation
             WHERE h.next_seq - 1 > coalesce(t.last, 0)",
        )
        .fetch_one(&mut superuser)
        .await?;
        Ok((left == 0).then_some(()))
    });
    if let Err(error) = counted.await {
        shared.violated(format!("I22: {error:#}"));
    }
    Ok(superuser.close().await?)
}

/// Returns whether a session of this list still has work.
pub(crate) fn is_busy(sessions: &[Value]) -> bool {
    sessions.iter().any(|session| session["busy"] != json!(false))
}
