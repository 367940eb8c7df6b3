//! Measures admission beside a million idle sessions, against a thousand.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rand::RngExt;
use sqlx::{AssertSqlSafe, Row};

use crate::output::{Figure, Mark, Reporter, note};
use crate::run::http::Http;
use crate::run::sessions::admit;
use crate::run::up::Up;
use crate::stats::{Samples, median};

const HOT: usize = 1_000;
const PROMPT_BYTES: usize = 500;
const RUNS: usize = 5;
/// Idle sessions of one Location.
const PER_LOCATION: u32 = 100;

/// Arguments of `idle`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Idle sessions of the larger service
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=5_000_000))]
    idle: u32,
    /// Admissions in each of the five runs
    #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    admits: u32,
    /// Gives each idle session its first event, its projection and a promoted input too
    #[arg(long)]
    full: bool,
}

/// A service with its hot sessions.
struct Side {
    up: Up,
    http: Http,
    hot: Vec<String>,
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    let mut few = side(bin, 1_000, args.full).await?;
    let mut many = side(bin, args.idle, args.full).await?;
    out.probed(many.up.probe().await?);
    let buffers_few = buffers(&few).await?;
    let buffers_many = buffers(&many).await?;
    for side in [&mut few, &mut many] {
        burst(side, args.admits).await?;
    }
    let mut p50 = [Vec::new(), Vec::new()];
    let mut p99 = [Vec::new(), Vec::new()];
    for run in 0..RUNS {
        note(&format!("run {} of {RUNS}", run + 1));
        for (at, side) in [&mut few, &mut many].into_iter().enumerate() {
            let ran = burst(side, args.admits).await?;
            p50[at].push(ran.ms(50));
            p99[at].push(ran.ms(99));
        }
    }
    for (name, [few, many], bound) in
        [("idle.admit_p50_ratio", p50, 1.15), ("idle.admit_p99_ratio", p99, 1.3)]
    {
        let (few, many) = (median(few), median(many));
        let figure = Figure::new(name, many / few, "times")
            .mark(Mark::AtMost(bound))
            .with("few_ms", few)
            .with("many_ms", many)
            .with("idle", f64::from(args.idle));
        out.print(figure)?;
    }
    let figure = Figure::new("idle.more_buffers", buffers_many - buffers_few, "buffers")
        .mark(Mark::AtMost(2.0))
        .with("few", buffers_few)
        .with("many", buffers_many)
        .text("rows", if args.full { "heads, sessions, events, inputs" } else { "heads" });
    out.print(figure)?;
    many.up.stop().await?;
    few.up.stop().await
}

async fn side(bin: &Path, idle: u32, full: bool) -> anyhow::Result<Side> {
    note(&format!("a service with {idle} idle sessions"));
    let up = Up::start(bin).await?;
    up.postgres.no_autovacuum().await?;
    let (mut http, target) = (up.http().await?, up.target());
    let mut hot = Vec::with_capacity(HOT);
    for _ in 0..HOT {
        hot.push(target.session(&mut http).await?);
    }
    fill(&up, idle, full).await?;
    up.postgres.execute("VACUUM ANALYZE").await?;
    up.postgres.execute("CHECKPOINT").await?;
    Ok(Side { up, http, hot })
}

/// Creates idle sessions over the whole range of ids, so that hot ones are among them.
async fn fill(up: &Up, idle: u32, full: bool) -> anyhow::Result<()> {
    let locations = idle.div_ceil(PER_LOCATION);
    up.postgres
        .execute(&format!(
            "INSERT INTO location (org_id, id, project_id, kind, directory, created_ms)
             SELECT p.org_id, 'loc_idle' || n, p.id, 'local', '/idle/' || n, 1
             FROM (SELECT org_id, id FROM project LIMIT 1) AS p, generate_series(1, {locations}) AS n"
        ))
        .await?;
    let step = (1_u64 << 48) / u64::from(idle);
    let id = format!("lpad(to_hex(n::bigint * {step} - 1), 12, '0') || 'idle0000000000'");
    let from = format!(
        "(SELECT org_id FROM organisation LIMIT 1) AS o, generate_series(1, {idle}::bigint) AS n"
    );
    // Above those of the hot sessions.
    let number = "(n + 1000000)";
    let seq = if full { 3 } else { 1 };
    up.postgres
        .execute(&format!(
            "INSERT INTO session_head (org_id, id, incarnation, claim, access_gen, location_id, next_seq)
             SELECT o.org_id, 'ses_' || {id}, {number}, {number} << 32, {number} << 32,
                 'loc_idle' || (n + {PER_LOCATION} - 1) / {PER_LOCATION}, {seq}
             FROM {from}"
        ))
        .await?;
    if !full {
        return Ok(());
    }
    let payload = "'{\"filled\":\"' || repeat('x', 300) || '\"}'";
    for sql in [
        format!(
            "INSERT INTO session_event (org_id, incarnation, seq, id, kind, version, time_ms, payload)
             SELECT o.org_id, {number}, seq, 'evt_' || seq || {id}, 'session.created', 1, 1, {payload}
             FROM {from}, generate_series(1, 2) AS seq"
        ),
        format!(
            "INSERT INTO session (org_id, id, project_id, location_id, directory, title, agent, created_ms,
                 updated_ms, projector_version, incarnation)
             SELECT o.org_id, 'ses_' || {id}, 'prj_idle', 'loc_idle', '/idle', 'idle', 'build', 1, 1, 1, {number}
             FROM {from}"
        ),
        format!(
            "INSERT INTO session_input (org_id, id, incarnation, delivery, status, admitted_seq, admitted_ms,
                 promoted_seq, projector_version)
             SELECT o.org_id, 'msg_' || {id}, {number}, 'steer', 'promoted', 1, 1, 2, 1
             FROM {from}"
        ),
    ] {
        up.postgres.execute(&sql).await?;
    }
    Ok(())
}

/// Admits one prompt after the other with one client, each in a random hot session.
async fn burst(side: &mut Side, admits: u32) -> anyhow::Result<Samples> {
    let text = "x".repeat(PROMPT_BYTES);
    let mut samples = Samples::default();
    for _ in 0..admits {
        let session = &side.hot[rand::rng().random_range(0..HOT)];
        let began = Instant::now();
        admit(&mut side.http, session, &text, false).await?;
        samples.push(began.elapsed());
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    Ok(samples)
}

/// Returns the median of the buffers that an admission touches, as the service's role. All admissions are rolled
/// back.
async fn buffers(side: &Side) -> anyhow::Result<f64> {
    let mut connection = side.up.postgres.pool.acquire().await?;
    let org = sqlx::query("SELECT org_id::text AS org FROM organisation LIMIT 1")
        .fetch_one(&mut *connection)
        .await?
        .try_get::<String, _>("org")?;
    let mut seen = Vec::new();
    for (number, session) in side.hot.iter().take(40).enumerate() {
        let message = format!("msg_ffffffff{number:04x}probe000000000");
        let payload = format!(r#"{{"message":"{message}","delivery":"steer","digest":"d"}}"#);
        sqlx::raw_sql("BEGIN; SET LOCAL ROLE oc_app").execute(&mut *connection).await?;
        let explain = format!(
            "EXPLAIN (ANALYZE, BUFFERS) SELECT * FROM admit_prompt('{org}', '{session}', '{message}',
                 'steer', 'd', false, 'evt_probe{number}', 1, 1, '{payload}')"
        );
        let rows = sqlx::query(AssertSqlSafe(explain)).fetch_all(&mut *connection).await?;
        sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await?;
        let mut touched = None;
        for row in rows {
            let line: String = row.try_get(0)?;
            touched = touched.or_else(|| shared_buffers(&line));
        }
        // The first ones also load the catalogue into the connection's caches.
        if number >= 10 {
            seen.push(touched.context("the plan tells no buffers")?);
        }
    }
    ensure!(!seen.is_empty(), "no admission was explained");
    Ok(median(seen))
}

/// Parses `Buffers: shared hit=12 read=3 dirtied=1` into hits and reads.
fn shared_buffers(line: &str) -> Option<f64> {
    let rest = line.trim().strip_prefix("Buffers: shared ")?;
    let counted = rest.split_whitespace().take_while(|word| *word != "local");
    let numbers = counted.filter_map(|word| {
        let (name, count) = word.trim_end_matches(',').split_once('=')?;
        matches!(name, "hit" | "read").then(|| count.parse::<f64>().ok())?
    });
    Some(numbers.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_that_were_hit_or_read_count() {
        assert_eq!(shared_buffers("  Buffers: shared hit=12 read=3 dirtied=1"), Some(15.0));
        assert_eq!(shared_buffers("Planning Time: 1 ms"), None);
    }
}
