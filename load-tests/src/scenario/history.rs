//! Measures a turn after a thousand messages, against ten.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;

use anyhow::{Context, ensure};
use domain::{EventId, RecordedEvent, Seq, SessionEvent};
use history::{Components, History, hash_hex};
use sqlx::Row;

use crate::output::{Figure, Mark, Reporter, note};
use crate::run::cpu;
use crate::run::http::Http;
use crate::run::postgres::{COUNTED, Postgres};
use crate::run::up::Up;

pub(super) const SHORT: usize = 10;
pub(super) const LONG: usize = 1_000;
const PROMPT: &str = "say 20 words";
const ENCODINGS: u32 = 200;

/// Arguments of `history`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Turns that are measured at each length
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(10..=1_000))]
    turns: u32,
}

/// The cost of one turn at one length.
struct Cost {
    service_ms: f64,
    postgres_ms: f64,
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    let up = Up::start(bin).await?;
    out.probed(up.probe().await?);
    up.postgres.no_autovacuum().await?;
    let mut http = up.http().await?;
    note("filling a long session and many short ones");
    let long = filled(&up, &mut http, LONG).await?;
    let mut short = Vec::new();
    // Two turns in each session, so that short ones stay short.
    for _ in 0..args.turns / 2 {
        short.push(filled(&up, &mut http, SHORT).await?);
    }
    let body = body_cost(&up.postgres, &long).await?;
    let small = body_cost(&up.postgres, &short[0]).await?;
    let mut shorts = Vec::new();
    let mut longs = Vec::new();
    // The lengths alternate, so that a change of the machine's speed affects both.
    for part in short.chunks(short.len().div_ceil(5)) {
        let twice: Vec<&String> = part.iter().flat_map(|session| [session, session]).collect();
        shorts.push((twice.len(), measured(&up, &mut http, &twice).await?));
        let same = vec![&long; twice.len()];
        longs.push((same.len(), measured(&up, &mut http, &same).await?));
    }
    let (at_10, at_1000) = (mean(&shorts), mean(&longs));
    let bound = at_10.service_ms + at_10.postgres_ms + 1.5 * body.ms;
    let cpu = Figure::new("history.cpu", at_1000.service_ms + at_1000.postgres_ms, "ms")
        .mark(Mark::AtMost(bound))
        .with("at_10_ms", at_10.service_ms + at_10.postgres_ms)
        .with("service_ms", at_1000.service_ms)
        .with("postgres_ms", at_1000.postgres_ms)
        .with("service_at_10_ms", at_10.service_ms)
        .with("postgres_at_10_ms", at_10.postgres_ms)
        .with("encode_and_hash_ms", body.ms)
        .with("encode_and_hash_at_10_ms", small.ms)
        .with("body_bytes", body.bytes as f64);
    out.print(cpu)?;
    let short: Vec<&String> = short.iter().collect();
    let few = rows_of(&up, &mut http, &short).await?;
    let many = rows_of(&up, &mut http, &vec![&long; short.len()]).await?;
    let rows = Figure::new("history.rows_read", many, "rows a turn")
        .mark(Mark::AtMost(few * 1.02 + 0.5))
        .with("at_10", few);
    out.print(rows)?;
    up.stop().await
}

/// Creates a session with this many messages.
pub(super) async fn filled(up: &Up, http: &mut Http, messages: usize) -> anyhow::Result<String> {
    let target = up.target();
    let session = target.session(http).await?;
    for _ in 0..messages / 2 {
        target.prompt(http, &session, PROMPT).await?;
    }
    Ok(session)
}

fn mean(parts: &[(usize, Cost)]) -> Cost {
    let turns: usize = parts.iter().map(|(turns, _)| turns).sum();
    let of = |value: fn(&Cost) -> f64| {
        parts.iter().map(|(turns, cost)| value(cost) * *turns as f64).sum::<f64>() / turns as f64
    };
    Cost { service_ms: of(|cost| cost.service_ms), postgres_ms: of(|cost| cost.postgres_ms) }
}

/// Returns the rows read from the tables of sessions, except heads, which sweeps read too.
async fn rows_read(postgres: &Postgres) -> anyhow::Result<i64> {
    tokio::time::sleep(COUNTED).await;
    let sql = "SELECT coalesce(sum(coalesce(idx_tup_fetch, 0) + seq_tup_read), 0)::bigint
               FROM pg_stat_user_tables WHERE relname IN ('session', 'session_event', 'session_input',
                   'message', 'part', 'provider_turn', 'provider_attempt', 'context_epoch',
                   'request_component', 'tool_result', 'mid_conversation_system_message')";
    postgres.number(sql).await
}

/// Runs one prompt in each of these sessions, one after the other.
async fn measured(up: &Up, http: &mut Http, sessions: &[&String]) -> anyhow::Result<Cost> {
    let target = up.target();
    let before = up.used()?;
    for session in sessions {
        target.prompt(http, session, PROMPT).await?;
    }
    let used = up.used()?.since(before);
    let turns = sessions.len() as f64;
    Ok(Cost {
        service_ms: used.service.as_secs_f64() * 1e3 / turns,
        postgres_ms: used.postgres.as_secs_f64() * 1e3 / turns,
    })
}

/// Returns the rows that a turn reads, over one prompt in each of these sessions.
async fn rows_of(up: &Up, http: &mut Http, sessions: &[&String]) -> anyhow::Result<f64> {
    let before = rows_read(&up.postgres).await?;
    measured(up, http, sessions).await?;
    Ok((rows_read(&up.postgres).await? - before) as f64 / sessions.len() as f64)
}

/// The cost of serialising and hashing a session's next body.
struct BodyCost {
    ms: f64,
    bytes: usize,
}

/// Folds a session's log here, and encodes and hashes its body many times.
async fn body_cost(postgres: &Postgres, session: &str) -> anyhow::Result<BodyCost> {
    let components = components(postgres, session).await?;
    let log = log(postgres, session).await?;
    let turn = log.iter().rev().find_map(|recorded| {
        let SessionEvent::TurnStarted(started) = &recorded.event else { return None };
        Some(started.turn.clone())
    });
    let turn = turn.context("the session has no turn")?;
    let mut history = History::new();
    history.extend(&log);
    let me = std::process::id();
    let before = cpu::of(me)?;
    let mut bytes = 0;
    for _ in 0..ENCODINGS {
        let body = history.encode(&components, &turn);
        bytes = body.len();
        black_box(hash_hex(&body));
    }
    let used = cpu::of(me)?.saturating_sub(before);
    ensure!(bytes > 0, "an empty body");
    Ok(BodyCost { ms: used.as_secs_f64() * 1e3 / f64::from(ENCODINGS), bytes })
}

async fn log(postgres: &Postgres, session: &str) -> anyhow::Result<Vec<RecordedEvent>> {
    let sql = "SELECT seq::bigint AS seq, id, kind, version, time_ms, payload FROM session_event
               WHERE incarnation = (SELECT incarnation FROM session WHERE id = $1) ORDER BY seq";
    let rows = sqlx::query(sql).bind(session).fetch_all(&postgres.pool).await?;
    rows.iter()
        .map(|row| {
            let id: EventId = row.try_get::<String, _>("id")?.parse()?;
            let (kind, payload): (String, String) = (row.try_get("kind")?, row.try_get("payload")?);
            Ok(RecordedEvent {
                seq: Seq(row.try_get("seq")?),
                id,
                time: row.try_get("time_ms")?,
                claim: None,
                event: SessionEvent::read(&kind, row.try_get("version")?, &payload)?,
            })
        })
        .collect()
}

/// Returns the components of the session's last attempt, besides history.
async fn components(postgres: &Postgres, session: &str) -> anyhow::Result<Components> {
    let sql = "SELECT components.key AS name, c.bytes
               FROM (SELECT convert_from(l.bytes, 'UTF8')::json AS names FROM session_event e
                     JOIN request_component l ON l.hash = decode(e.payload::json->>'components', 'hex')
                     WHERE incarnation = (SELECT incarnation FROM session WHERE id = $1)
                         AND e.kind = 'attempt.started' ORDER BY e.seq DESC LIMIT 1) AS last,
                    json_each_text(last.names) AS components
                    JOIN request_component c ON c.hash = decode(components.value, 'hex')";
    let rows = sqlx::query(sql).bind(session).fetch_all(&postgres.pool).await?;
    let mut bytes = BTreeMap::new();
    for row in rows {
        bytes.insert(row.try_get::<String, _>("name")?, row.try_get::<Vec<u8>, _>("bytes")?);
    }
    Components::read(&bytes).context("the components of an attempt cannot be read")
}
