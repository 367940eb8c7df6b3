//! Measures the questions of the console's usage pages over 90 days of an organisation.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, ensure};
use hyper::Method;
use serde_json::Value;

use crate::output::{Figure, Mark, Reporter, note};
use crate::run::http::Http;
use crate::run::up::Up;
use crate::stats::Samples;

/// Turns of one session: they have its person, project, agent and model.
const TURNS: u32 = 10;
const DAYS: i64 = 90;
const REQUESTS: usize = 100;
const WARM_UP: usize = 5;

/// Arguments of `usage`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Turns of the organisation in 90 days
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(10_000..=10_000_000))]
    turns: u32,
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    let up = Up::start(bin).await?;
    out.probed(up.probe().await?);
    let mut http = up.http().await?;
    note(&format!("filling {} turns of 90 days", args.turns));
    let rows = fill(&up, args.turns / TURNS).await?;
    let day =
        |before: i64| -> String { format!("now() AT TIME ZONE 'UTC' - interval '{before} days'") };
    let from = up
        .postgres
        .number(&format!(
            "SELECT (extract(epoch FROM date_trunc('day', {})) * 1000)::bigint",
            day(DAYS)
        ))
        .await?;
    for (name, query) in [
        ("usage.people_by_day", "step=day"),
        ("usage.people_by_week", "step=week&compare=previous"),
        ("usage.cost_by_model", "step=day&by=model&compare=previous"),
        ("usage.cost_by_person", "step=all&by=person&compare=previous"),
        ("usage.cost_by_project", "step=all&by=project&compare=previous"),
        ("usage.models", "step=all&by=provider,model&compare=previous"),
        ("usage.model_of_a_project", "step=day&by=model&project=prj_7&compare=previous"),
        ("usage.model_of_a_person", "step=day&by=model&person=usr_7&compare=previous"),
    ] {
        let path = format!("/platform/usage?from={from}&{query}");
        let figure = asked(&mut http, name, &path).await?.mark(Mark::AtMost(50.0));
        out.print(figure.with("turns", f64::from(args.turns)).with("rows_daily", rows as f64))?;
    }
    // It is the one question that no small table answers.
    let path = format!("/platform/usage?from={from}&step=all&by=person,model");
    out.print(asked(&mut http, "usage.person_by_model", &path).await?)?;
    up.stop().await
}

/// Asks one question again and again.
async fn asked(http: &mut Http, name: &str, path: &str) -> anyhow::Result<Figure> {
    let mut samples = Samples::default();
    let mut rows = 0;
    for number in 0..WARM_UP + REQUESTS {
        let began = Instant::now();
        let (status, answer) = http.call(Method::GET, path, String::new()).await?;
        let took = began.elapsed();
        ensure!(status.is_success(), "{path} answered {status}");
        if number == 0 {
            let answer: Value = serde_json::from_slice(&answer)?;
            rows = answer["rows"].as_array().context("there are no rows")?.len();
            ensure!(rows > 0, "{path} answered nothing");
        }
        if number >= WARM_UP {
            samples.push(took);
        }
    }
    Ok(Figure::new(name, samples.ms(95), "ms")
        .with("p50_ms", samples.ms(50))
        .with("rows", rows as f64))
}

/// Writes the sums that so many sessions leave: 200 people with 3 of 50 projects each, 4 agents, 40 models. Returns the rows of days.
async fn fill(up: &Up, sessions: u32) -> anyhow::Result<i64> {
    let sums = "sessions, prompts, turns, failed, interrupted, turn_ms, requests, retries, unpriced, compactions, \
                input_tokens, output_tokens, reasoning_tokens, cache_read_tokens, cache_write_tokens, cost_nanos, \
                tool_calls, tool_failures, lines_added, lines_removed";
    let added: Vec<String> = sums.split(", ").map(|sum| format!("sum({})", sum.trim())).collect();
    let added = added.join(", ");
    let now = "(extract(epoch FROM now()) * 1000)::bigint / 3600000";
    up.postgres
        .execute(&format!(
            "INSERT INTO usage_hourly (org_id, starts_ms, person, project, agent, provider, model, {sums})
             SELECT (SELECT org_id FROM organisation LIMIT 1), (({now}) - floor(random() * {DAYS} * 24)::bigint) * 3600000,
                 'usr_' || p, 'prj_' || (p * 7 + floor(random() * 3)::integer) % 50,
                 (ARRAY['build', 'plan', 'explore', 'review'])[1 + floor(random() * 4)::integer],
                 (ARRAY['anthropic', 'openai', 'google', 'mistral'])[1 + floor(random() * 4)::integer],
                 'model-' || floor(random() * 10)::integer,
                 1, 3, {TURNS}, 0, 0, 90000, {TURNS}, 1, 0, 0, 200000, 9000, 0, 150000, 0, 400000000, 20, 1, 30, 10
             FROM (SELECT floor(random() * 200)::integer AS p FROM generate_series(1, {sessions})) AS people
             ON CONFLICT DO NOTHING"
        ))
        .await?;
    let keys = "person, project, agent, provider, model";
    for (table, from, keys) in [
        ("usage_daily", "usage_hourly", keys),
        ("usage_model", "usage_daily", "provider, model, agent"),
        ("usage_person", "usage_daily", "person"),
        ("usage_project", "usage_daily", "project"),
    ] {
        up.postgres
            .execute(&format!(
                "INSERT INTO {table} (org_id, starts_ms, {keys}, {sums})
                 SELECT org_id, starts_ms - starts_ms % 86400000 AS day, {keys}, {added} FROM {from}
                 GROUP BY org_id, day, {keys}"
            ))
            .await?;
    }
    up.postgres.execute("ANALYZE").await?;
    up.postgres.number("SELECT count(*) FROM usage_daily").await
}
