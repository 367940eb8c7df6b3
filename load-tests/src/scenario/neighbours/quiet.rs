//! The organisation whose turns are measured: a few people who read an answer and ask again.

use std::time::{Duration, Instant};

use rand::RngExt;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use super::caller::Caller;
use crate::run::sessions::Target;
use crate::stats::Samples;

const PROMPT: &str = "say 20 words";
/// Turns after which a client starts a new session, so that histories stay bounded.
const TURNS_PER_SESSION: usize = 20;
/// The time between an answer and the next prompt, in milliseconds. It varies, so that the clients do not march in step.
const THINKS_MS: std::ops::RangeInclusive<u64> = 50..=150;

/// The turns of one span, or of several.
#[derive(Default)]
pub(super) struct Seen {
    /// How long those turns took that were answered.
    pub(super) turns: Samples,
    /// The requests that were refused or failed, each with its error.
    pub(super) refused: Vec<String>,
}

impl Seen {
    pub(super) fn add(&mut self, other: Self) {
        self.turns.extend(other.turns);
        self.refused.extend(other.refused);
    }
}

/// Has this many sessions at once prompt for a span, and times their turns. It does so in a thread of its own: a turn
/// that waited for the driver's other work would be no measurement.
pub(super) async fn measure_turns(
    target: Target,
    sessions: u8,
    span: Duration,
) -> anyhow::Result<Seen> {
    let thread = tokio::task::spawn_blocking(move || {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(prompt_at_once(&target, sessions, span))
    });
    thread.await?
}

async fn prompt_at_once(target: &Target, sessions: u8, span: Duration) -> anyhow::Result<Seen> {
    let deadline = Instant::now() + span;
    let mut clients = JoinSet::new();
    for _ in 0..sessions {
        let target = target.clone();
        clients.spawn(prompt_until(target, deadline));
    }
    let mut all = Seen::default();
    while let Some(seen) = clients.join_next().await {
        all.add(seen?);
    }
    Ok(all)
}

async fn prompt_until(target: Target, deadline: Instant) -> Seen {
    let directory = target.directory.clone();
    let mut caller = Caller::new(target);
    let mut seen = Seen::default();
    while Instant::now() < deadline {
        let session = match caller.create_session(&directory).await {
            Ok(session) => session,
            Err(error) => {
                seen.refused.push(format!("a new session: {error:#}"));
                continue;
            }
        };
        for _ in 0..TURNS_PER_SESSION {
            let thinks = rand::rng().random_range(THINKS_MS);
            tokio::time::sleep(Duration::from_millis(thinks)).await;
            if Instant::now() >= deadline {
                break;
            }
            let begun = Instant::now();
            match caller.prompt_held(&directory, &session, PROMPT).await {
                Ok(_) => seen.turns.push(begun.elapsed()),
                Err(error) => {
                    let took = begun.elapsed().as_secs_f64();
                    let state = caller.describe(&session).await;
                    let state = state.unwrap_or_else(|error| format!("{error:#}"));
                    seen.refused.push(format!("a prompt after {took:.1} s: {error:#} ({state})"));
                }
            }
        }
    }
    seen
}
