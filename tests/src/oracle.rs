//! Proves from outside what must hold after every journey and every fault run.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use reqwest::Method;
use serde_json::{Value, json};
use simulated_model::{Counts, Handle};

use crate::api::Api;
use crate::settle::{events_of, eventually};

/// How long the check of all rows may take: a long run leaves thousands of turns, and each is proved by its hash.
const CHECK: Duration = Duration::from_secs(600);

/// The oracle's counts, so that a run that checked nothing can be rejected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Sessions.
    pub sessions: usize,
    /// Durable events.
    pub events: usize,
    /// Provider Turns.
    pub turns: usize,
    /// Attempt rows.
    pub attempts: usize,
    /// Requests that the provider saw.
    pub wire_requests: usize,
}

/// Waits until nothing runs, then proves: no violation in the rows, every log is 1..n, projections rebuild byte for
/// byte, a gateway folds events into the same messages, every sent request explains to its hash, and the provider's
/// ledger equals ours.
///
/// `model` must have seen every request of this service, and of no other.
///
/// # Errors
/// The first violation.
pub async fn oracle(api: &Api, model: &Handle) -> Result<Verdict> {
    oracle_of(&[api], model).await
}

/// Like [`oracle`], for all organisations whose requests `model` has seen, each with its own key.
///
/// # Errors
/// The first violation.
pub async fn oracle_of(organisations: &[&Api], model: &Handle) -> Result<Verdict> {
    judged(organisations, model, None).await
}

/// Requests and sessions that an oracle does not count: requests whose body has this text, and sessions whose id
/// matches.
pub(crate) type Without<'w> = (&'w str, fn(&str) -> bool);

/// Like [`oracle`], but does not compare the requests of some sessions with their rows, which may be deleted.
///
/// # Errors
/// The first violation.
pub(crate) async fn oracle_without(
    api: &Api,
    model: &Handle,
    without: Without<'_>,
) -> Result<Verdict> {
    judged(&[api], model, Some(without)).await
}

async fn judged(
    organisations: &[&Api],
    model: &Handle,
    without: Option<Without<'_>>,
) -> Result<Verdict> {
    let mut seen = Seen::default();
    for api in organisations {
        organisation(api, &mut seen, without.map(|(_, is_left_out)| is_left_out)).await?;
    }
    let mut counts = model.counts();
    for request in without.map_or_else(Vec::new, |(text, _)| model.requests_after(0, text)) {
        counts.requests -= 1;
        counts.by_sha256.remove(&request.sha256);
        let usage = request.usage.unwrap_or_default();
        counts.usage.prompt_tokens -= usage.prompt_tokens;
        counts.usage.completion_tokens -= usage.completion_tokens;
    }
    seen.verdict.wire_requests = usize::try_from(counts.requests)?;
    agrees(&counts, &seen.sent, &seen.ledger)?;
    Ok(seen.verdict)
}

#[derive(Default)]
struct Seen {
    verdict: Verdict,
    /// Attempt rows by the hash of their body.
    sent: BTreeMap<String, u64>,
    ledger: Ledger,
}

async fn organisation(
    api: &Api,
    seen: &mut Seen,
    is_left_out: Option<fn(&str) -> bool>,
) -> Result<()> {
    eventually("every session comes to rest", 60, async || {
        let sessions = api.sessions().await?;
        Ok(sessions.iter().all(|session| session["busy"] == json!(false)).then_some(()))
    })
    .await?;
    let check = api.request(Method::GET, "/platform/check?settled=true&blobs=true");
    let broken = api.send_within(CHECK, check).await?.ok()?;
    ensure!(broken == json!([]), "broken invariants: {broken:#}");
    for session in api.sessions().await? {
        let id = session["id"].as_str().context("a session has an id")?;
        let log = api.log(id).await?;
        let seqs: Vec<i64> = log.iter().filter_map(|event| event["seq"].as_i64()).collect();
        let whole: Vec<i64> = (1..).take(log.len()).collect();
        ensure!(seqs == whole, "I5: the log of {id} has holes or repeats: {seqs:?}");
        ensure!(
            session["seq"].as_i64() == seqs.last().copied(),
            "I5: {session} of {} events",
            log.len()
        );
        rebuilds(api, id).await?;
        let counted = !is_left_out.is_some_and(|left_out| left_out(id));
        seen.verdict.sessions += 1;
        seen.verdict.events += log.len();
        for turn in events_of(&log, "turn.started") {
            explains(api, &turn["turn"]).await?;
            seen.verdict.turns += 1;
        }
        for attempt in events_of(&log, "attempt.started") {
            explains(api, &attempt["attempt"]).await?;
            let hash = attempt["body_hash"].as_str().context("an attempt has a hash")?;
            if counted {
                *seen.sent.entry(hash.to_owned()).or_default() += 1;
            }
            seen.verdict.attempts += 1;
        }
        for attempt in events_of(&log, "attempt.ended").into_iter().filter(|_| counted) {
            seen.ledger.add(attempt);
        }
    }
    Ok(())
}

async fn rebuilds(api: &Api, session: &str) -> Result<()> {
    let path = format!("/platform/session/{session}/rebuild?check=true");
    let report = api.post(&path, &json!({})).await?.ok()?;
    ensure!(report["exact"] == json!(true), "I7: {session} does not rebuild: {report:#}");
    Ok(())
}

async fn explains(api: &Api, id: &Value) -> Result<()> {
    let id = id.as_str().context("an id is a string")?;
    // On a busy machine Postgres may be away for some seconds: the service says so, and to ask again.
    let told = eventually("a turn is explained", 60, async || {
        let told = api.get(&format!("/platform/explain/{id}")).await?;
        Ok((told.status != 503).then_some(told))
    })
    .await?;
    // A turn whose owner died before its first attempt has nothing to explain.
    if told.status == 404 && id.starts_with("trn_") {
        return Ok(());
    }
    let told = told.ok().with_context(|| format!("explain {id}"))?;
    ensure!(told["match"] == json!(true), "{id} does not explain: {told:#}");
    Ok(())
}

/// The provider's usage according to our attempts.
#[derive(Debug, Default)]
struct Ledger {
    input: i64,
    output: i64,
    /// Attempts with an incomplete answer: the provider may have counted more than we know.
    unfinished: usize,
}

impl Ledger {
    fn add(&mut self, attempt: &Value) {
        self.input += attempt["usage"]["input"].as_i64().unwrap_or(0);
        self.output += attempt["usage"]["output"].as_i64().unwrap_or(0);
        if attempt["outcome"] != "completed" {
            self.unfinished += 1;
        }
    }
}

/// Checks I9: at most one wire request per attempt row, with the row's body, and the provider's usage.
fn agrees(counts: &Counts, sent: &BTreeMap<String, u64>, ours: &Ledger) -> Result<()> {
    for (hash, seen) in &counts.by_sha256 {
        let rows = sent.get(hash).copied().unwrap_or(0);
        ensure!(*seen <= rows, "I9: body {hash} was seen {seen} times and has {rows} attempt rows");
    }
    let theirs = [counts.usage.prompt_tokens, counts.usage.completion_tokens];
    let told = [u64::try_from(ours.input)?, u64::try_from(ours.output)?];
    if ours.unfinished == 0 {
        let rows: u64 = sent.values().sum();
        ensure!(
            counts.requests == rows,
            "I9: {} requests for {rows} attempt rows",
            counts.requests
        );
        ensure!(theirs == told, "I9: the provider counted {theirs:?} tokens, we {told:?}");
    }
    let within = told.iter().zip(theirs).all(|(told, theirs)| *told <= theirs);
    ensure!(within, "I9: the provider counted {theirs:?} tokens, we {told:?}");
    Ok(())
}
