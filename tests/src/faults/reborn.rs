//! A client that deletes its session and creates it again under the same id, while the cluster fails.
//!
//! A late request would rightly reach the next session with that id. So an id is reused only if every request to it
//! was answered; otherwise the client continues with a fresh id.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rand::RngExt;
use rand::rngs::StdRng;
use reqwest::Method;
use serde_json::{Value, json};
use tasks::CancellationToken;
use tokio::time::{Instant, sleep, timeout};

use super::coverage::Sight;
use super::judge::PromptFates;
use super::shared::{Shared, locked};
use crate::api::{Answer, message_id};

/// A word in every prompt of such a session, to tell its requests from those of lasting sessions.
pub(crate) const MARKER: &str = "reborn";
/// The beginning of every id of such a session.
pub(crate) const PREFIX: &str = "ses_reborn";
/// A file in the Location to which each command appends its own line.
const EFFECTS: &str = "reborn.txt";
/// How long one try may take.
const TRY: Duration = Duration::from_secs(5);
/// How long a request may go unanswered, whatever fails.
const PATIENCE: Duration = Duration::from_secs(90);

/// One session from its creation to its deletion.
#[derive(Debug, Clone, Default)]
pub(crate) struct Life {
    id: String,
    /// Its acknowledged prompts.
    acknowledged: Vec<String>,
}

/// A client of one session that is deleted and created again.
pub(crate) struct Reborn {
    shared: Arc<Shared>,
    directory: PathBuf,
    /// The client's number within the run.
    number: usize,
    random: StdRng,
    /// The number of abandoned ids.
    fresh: usize,
    /// The number of requested commands.
    commands: usize,
    /// Whether a request to the current id failed or got no answer.
    uncertain: bool,
}

impl Reborn {
    pub(crate) fn new(
        shared: Arc<Shared>,
        directory: PathBuf,
        number: usize,
        random: StdRng,
    ) -> Self {
        Self { shared, directory, number, random, fresh: 0, commands: 0, uncertain: false }
    }

    /// Runs until it is stopped, and returns the last life if it has not ended.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Option<Life> {
        loop {
            if std::mem::take(&mut self.uncertain) {
                self.fresh += 1;
            }
            let id = format!("{PREFIX}-{}-{}", self.number, self.fresh);
            let mut life = Life { id, acknowledged: Vec::new() };
            self.create(&life.id).await?;
            for _ in 0..self.random.random_range(1..=2) {
                let message = self.prompt(&life.id).await?;
                life.acknowledged.push(message);
            }
            let pause = Duration::from_millis(self.random.random_range(0..1_500));
            tokio::select! {
                () = sleep(pause) => {}
                () = stop.cancelled() => {}
            }
            if stop.is_cancelled() {
                return Some(life);
            }
            let certain = !self.uncertain;
            self.delete(&life.id).await?;
            if certain && !self.uncertain {
                self.shared.saw(Sight::SessionReborn);
            }
        }
    }

    async fn create(&mut self, id: &str) -> Option<()> {
        let body = json!({ "directory": self.directory, "title": "reborn", "id": id });
        let path = format!("/project/{}/session", self.shared.project);
        self.until_done("a new session", Method::POST, &path, Some(&body)).await
    }

    async fn prompt(&mut self, id: &str) -> Option<String> {
        self.commands += 1;
        let line = format!("{MARKER}-{}-{}-{}", self.number, self.fresh, self.commands);
        let seconds = f64::from(self.random.random_range(0..12)) / 10.0;
        let text = format!("run echo {line} >> {EFFECTS}; sleep {seconds}");
        let message = message_id(0);
        let body = json!({ "messageID": message, "parts": [{ "type": "text", "text": text }] });
        let path = format!("/platform/session/{id}/message");
        self.until_done("a prompt", Method::POST, &path, Some(&body)).await?;
        Some(message)
    }

    async fn delete(&mut self, id: &str) -> Option<()> {
        let path = format!("/platform/session/{id}");
        self.until_done("a deletion", Method::DELETE, &path, None).await
    }

    /// Sends a request until it succeeds. Returns `None` if it was refused or took too long, which is a violation.
    async fn until_done(
        &mut self,
        kind: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Option<()> {
        let begun = Instant::now();
        loop {
            let gateway = self.random.random_range(0..self.shared.gateways.len());
            let api = &self.shared.gateways[gateway];
            let mut request = api.request(method.clone(), path);
            if let Some(body) = body {
                request = request.json(body);
            }
            let why = match timeout(TRY, api.send(request)).await {
                Ok(Ok(Answer { status: 200..300, .. })) => return Some(()),
                // An earlier try has deleted it.
                Ok(Ok(Answer { status: 404, .. }))
                    if method == Method::DELETE && self.uncertain =>
                {
                    return Some(());
                }
                Ok(Ok(Answer { status: status @ 400..500, body })) => {
                    self.shared.violated(format!("{kind} at {path} is refused: {status} {body}"));
                    return None;
                }
                Ok(Ok(Answer { status, body })) => format!("status {status}: {body}"),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => "no answer".to_owned(),
            };
            self.uncertain = true;
            if begun.elapsed() > PATIENCE {
                self.shared.violated(format!("{kind} at {path} is not answered: {why}"));
                return None;
            }
            sleep(Duration::from_millis(self.random.random_range(50..300))).await;
        }
    }
}

/// Checks the last life: its log is its own, and has its acknowledged prompts.
///
/// # Errors
/// When its log cannot be read.
pub(crate) async fn judge_life(shared: &Shared, life: &Life) -> Result<()> {
    let log = shared.gateways[0].log(&life.id).await.context("the log of a session made anew")?;
    let admitted = log.iter().filter(|event| event["type"] == "prompt.admitted");
    let admitted: Vec<&str> =
        admitted.filter_map(|event| event["data"]["message"].as_str()).collect();
    if admitted != life.acknowledged {
        shared.violated(format!(
            "I1: {} has the prompts {admitted:?}, acknowledged were {:?}",
            life.id, life.acknowledged
        ));
    }
    let fates = PromptFates::of(&log);
    for message in &life.acknowledged {
        if let Err(fault) = fates.kept(message) {
            shared.violated(format!("acknowledged {message} of {}: {fault}", life.id));
        }
    }
    Ok(())
}

/// Checks that no command of these sessions ran twice, whether its session still exists or not.
pub(crate) fn judge_lines(shared: &Shared, location: &Path) {
    let text = fs::read_to_string(location.join(EFFECTS)).unwrap_or_default();
    let mut lines = HashSet::new();
    for line in text.lines().filter(|line| !lines.insert(*line)) {
        shared.violated(format!("I8: `{line}` of a session made anew ran twice"));
    }
}

/// Returns whether an id belongs to such a session.
pub(crate) fn is_reborn(id: &str) -> bool {
    id.starts_with(PREFIX)
}

/// Keeps a last life for the verdict.
pub(crate) fn note_left(shared: &Shared, left: Option<Life>) {
    locked(&shared.lives).extend(left);
}
