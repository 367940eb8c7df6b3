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
use serde_json::json;
use tasks::CancellationToken;
use tokio::time::sleep;

use super::coverage::Sight;
use super::judge::PromptFates;
use super::persistent::Persistent;
use super::shared::{Shared, locked};
use crate::api::message_id;

/// A word in every prompt of such a session, to tell its requests from those of lasting sessions.
pub(crate) const MARKER: &str = "reborn";
/// The beginning of every id of such a session.
pub(crate) const PREFIX: &str = "ses_reborn";
/// A file in the Location to which each command appends its own line.
const EFFECTS: &str = "reborn.txt";

/// One session from its creation to its deletion.
#[derive(Debug, Clone, Default)]
pub(crate) struct Life {
    pub(crate) id: String,
    /// Its acknowledged prompts.
    pub(crate) acknowledged: Vec<String>,
}

/// A client of one session that is deleted and created again.
pub(crate) struct Reborn {
    sender: Persistent,
    directory: PathBuf,
    /// The client's number within the run.
    number: usize,
    /// The number of abandoned ids.
    fresh: usize,
    /// The number of requested commands.
    commands: usize,
}

impl Reborn {
    pub(crate) fn new(
        shared: Arc<Shared>,
        directory: PathBuf,
        number: usize,
        random: StdRng,
    ) -> Self {
        let sender = Persistent::new(shared, random);
        Self { sender, directory, number, fresh: 0, commands: 0 }
    }

    /// Runs until it is stopped, and returns the last life if it has not ended.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Option<Life> {
        loop {
            if std::mem::take(&mut self.sender.is_uncertain) {
                self.fresh += 1;
            }
            let id = format!("{PREFIX}-{}-{}", self.number, self.fresh);
            let mut life = Life { id, acknowledged: Vec::new() };
            self.create(&life.id).await?;
            for _ in 0..self.sender.random.random_range(1..=2) {
                let message = self.prompt(&life.id).await?;
                life.acknowledged.push(message);
            }
            let pause = Duration::from_millis(self.sender.random.random_range(0..1_500));
            tokio::select! {
                () = sleep(pause) => {}
                () = stop.cancelled() => {}
            }
            if stop.is_cancelled() {
                return Some(life);
            }
            let certain = !self.sender.is_uncertain;
            self.delete(&life.id).await?;
            if certain && !self.sender.is_uncertain {
                self.sender.shared.saw(Sight::SessionReborn);
            }
        }
    }

    async fn create(&mut self, id: &str) -> Option<()> {
        let body = json!({ "directory": self.directory, "title": "reborn", "id": id });
        let path = format!("/project/{}/session", self.sender.shared.project);
        self.sender.send_until_done("a new session", Method::POST, &path, Some(&body)).await
    }

    async fn prompt(&mut self, id: &str) -> Option<String> {
        self.commands += 1;
        let line = format!("{MARKER}-{}-{}-{}", self.number, self.fresh, self.commands);
        let seconds = f64::from(self.sender.random.random_range(0..12)) / 10.0;
        let text = format!("run echo {line} >> {EFFECTS}; sleep {seconds}");
        let message = message_id(0);
        let body = json!({ "messageID": message, "parts": [{ "type": "text", "text": text }] });
        let path = format!("/platform/session/{id}/message");
        self.sender.send_until_done("a prompt", Method::POST, &path, Some(&body)).await?;
        Some(message)
    }

    async fn delete(&mut self, id: &str) -> Option<()> {
        let path = format!("/platform/session/{id}");
        self.sender.send_until_done("a deletion", Method::DELETE, &path, None).await
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
