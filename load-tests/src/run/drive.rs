//! Keeps sessions of a server busy over the routes of stock clients, and counts their turns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use hyper::Method;
use serde_json::Value;
use tokio::task::JoinSet;

use super::http::Http;
use super::idle_events::{IdleEvents, is_idle};
use super::sessions::Target;
use crate::stats::Samples;

/// Turns after which a client starts a new session, so that histories stay bounded.
const TURNS_PER_SESSION: usize = 20;

/// The result of a drive.
pub(crate) struct Drive {
    pub(crate) turns: Samples,
    pub(crate) took: Duration,
}

impl Drive {
    pub(crate) fn rate(&self) -> f64 {
        self.turns.len() as f64 / self.took.as_secs_f64()
    }
}

/// Keeps `sessions` sessions busy, each with a client that waits for its held answer.
pub(crate) async fn drive(
    target: &Target,
    sessions: usize,
    span: Duration,
    prompt: &'static str,
) -> anyhow::Result<Drive> {
    drive_by(target, sessions, span, prompt, None).await
}

/// The same over `prompt_async`: clients wait for the event that tells of the end.
pub(crate) async fn drive_async(
    target: &Target,
    sessions: usize,
    span: Duration,
    prompt: &'static str,
) -> anyhow::Result<Drive> {
    let events = Arc::new(IdleEvents::of(target).await?);
    drive_by(target, sessions, span, prompt, Some(events)).await
}

async fn drive_by(
    target: &Target,
    sessions: usize,
    span: Duration,
    prompt: &'static str,
    events: Option<Arc<IdleEvents>>,
) -> anyhow::Result<Drive> {
    let mut clients = Vec::with_capacity(sessions);
    for _ in 0..sessions {
        clients.push(target.http().await?);
    }
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for mut http in clients {
        let (target, events) = (target.clone(), events.clone());
        tasks.spawn(async move {
            let mut turns = Samples::default();
            let mut last = (String::new(), 0);
            while began.elapsed() < span {
                last = (target.session(&mut http).await?, 0);
                while last.1 < TURNS_PER_SESSION && began.elapsed() < span {
                    let start = Instant::now();
                    match &events {
                        None => target.prompt(&mut http, &last.0, prompt).await?,
                        Some(events) => {
                            let expected = events.expect(&last.0);
                            target.begin(&mut http, &last.0, prompt).await?;
                            is_idle(expected).await?;
                        }
                    }
                    turns.push(start.elapsed());
                    last.1 += 1;
                }
            }
            anyhow::Ok((turns, http, last))
        });
    }
    let mut turns = Samples::default();
    let mut ended = Vec::new();
    while let Some(client) = tasks.join_next().await {
        let (its, http, last) = client??;
        turns.extend(its);
        ended.push((http, last));
    }
    let took = began.elapsed();
    // An event that came twice would have counted a turn that was not over.
    for (mut http, (session, turns)) in ended {
        answered(&mut http, &session, turns).await?;
    }
    Ok(Drive { turns, took })
}

/// Makes sure that each turn of a session has its whole answer.
async fn answered(http: &mut Http, session: &str, turns: usize) -> anyhow::Result<()> {
    let path = format!("/session/{session}/message");
    let messages = http.json(Method::GET, &path, &Value::Null).await?;
    let all = messages.as_array().map_or(&[][..], Vec::as_slice);
    let is_answer = |it: &&Value| {
        it["info"]["role"] == "assistant" && it["info"]["time"]["completed"].is_number()
    };
    let answers = all.iter().filter(is_answer).count();
    ensure!(answers == turns, "{turns} turns in {session}, and {answers} answers");
    Ok(())
}
