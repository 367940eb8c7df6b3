//! Neighbours that try to stop everybody, while the cluster fails: one digs a deep tree, one fills its disk, one fills inboxes
//! and deletes them, and one's provider counts what cannot be.
//!
//! Their sessions have to stay whole as well: the oracle proves their requests, and their prompts are judged.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use reqwest::Method;
use serde_json::{Value, json};
use simulated_model::{Handle, Script, ScriptError};
use tasks::CancellationToken;
use tokio::time::{Instant, sleep};

use super::coverage::Sight;
use super::persistent::Persistent;
use super::reborn::Life;
use super::shared::Shared;
use crate::api::message_id;

/// The flag that bounds a workspace, so that it can be filled.
pub(crate) const WORKSPACE: &str = "--workspace-size=32MiB";

/// How long the effect of one act is waited for. It may come later, and is then seen by the next one.
const EFFECT: Duration = Duration::from_secs(30);
/// The bytes of a prompt that fills an inbox: less than the most that one may have.
const LARGE: usize = 400_000;
/// More of them than an inbox takes.
const MANY: usize = 60;

/// The act of one neighbour, again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    DigDeepTrees,
    FillTheDisk,
    FillInboxes,
    CountOddly,
}

impl Act {
    pub(crate) const ALL: [Self; 4] =
        [Self::DigDeepTrees, Self::FillTheDisk, Self::FillInboxes, Self::CountOddly];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DigDeepTrees => "deep",
            Self::FillTheDisk => "full",
            Self::FillInboxes => "inbox",
            Self::CountOddly => "odd",
        }
    }

    /// The `number`th prompt, which does it or undoes it.
    fn prompt(self, number: usize) -> String {
        let undoes = number % 2 == 1;
        match self {
            Self::DigDeepTrees if undoes => "run rm -rf d; echo gone".to_owned(),
            Self::DigDeepTrees => {
                "run python3 -c \"import os; [(os.mkdir('d'), os.chdir('d')) for _ in range(2500)]\"; echo dug"
                    .to_owned()
            }
            Self::FillTheDisk if undoes => "run rm -f full; echo gone".to_owned(),
            Self::FillTheDisk => "run head -c 48M /dev/zero >full".to_owned(),
            Self::FillInboxes => "w".repeat(LARGE),
            Self::CountOddly => format!("say {} words oddly", 2 + number % 5),
        }
    }

    /// The sign that it took effect: the type of an event, and a part of it.
    fn effect(self) -> (&'static str, &'static str, Sight) {
        match self {
            Self::DigDeepTrees => ("tool.settled", "dug", Sight::DeepTreeDug),
            Self::FillTheDisk => ("tool.settled", "workspace full", Sight::WorkspaceFilled),
            Self::FillInboxes => ("prompt.admitted", "", Sight::InboxFilled),
            Self::CountOddly => ("turn.settled", "completed", Sight::OddlyCounted),
        }
    }
}

/// Has the model count what cannot be, in answers to the neighbour whose provider does.
///
/// # Errors
/// When a script is refused.
pub(crate) fn script_odd_counts(model: &Handle) -> Result<(), ScriptError> {
    let counts = [
        json!({ "prompt_tokens": u64::MAX, "completion_tokens": u64::MAX, "total_tokens": 1 }),
        json!({ "prompt_tokens": -5, "completion_tokens": -9_000_000_000_i64 }),
        json!({ "prompt_tokens": 1e300, "completion_tokens": 0.5 }),
        json!({ "prompt_tokens": "many", "completion_tokens": [] }),
        Value::Null,
    ];
    for (number, usage) in counts.into_iter().enumerate() {
        let matches = format!("say {} words oddly", 2 + number);
        let (words, usage) = (Some(3), Some(usage));
        model.script(Script { matches, words, usage, ..Script::default() })?;
    }
    Ok(())
}

/// One neighbour.
pub(crate) struct Hostile {
    sender: Persistent,
    act: Act,
    directory: PathBuf,
    project: String,
}

impl Hostile {
    pub(crate) fn new(
        shared: Arc<Shared>,
        act: Act,
        (directory, project): (PathBuf, String),
        random: StdRng,
    ) -> Self {
        Self { sender: Persistent::new(shared, random), act, directory, project }
    }

    /// Runs until it is stopped, and returns its session, unless that is deleted.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Option<Life> {
        let mut life = Life { id: format!("ses_hostile-{}", self.act.name()), ..Life::default() };
        if self.act != Act::FillInboxes {
            self.create(&life.id).await?;
        }
        for number in 0.. {
            if self.act == Act::FillInboxes {
                self.fill_an_inbox(&format!("{}-{number}", life.id)).await?;
            } else {
                let message = self.send_prompt(&life.id, number).await?;
                life.acknowledged.push(message);
                self.await_effect(&life.id, number, &stop).await;
            }
            let pause = Duration::from_millis(self.sender.random.random_range(500..3_000));
            tokio::select! {
                () = sleep(pause) => {}
                () = stop.cancelled() => {}
            }
            if stop.is_cancelled() {
                break;
            }
        }
        (self.act != Act::FillInboxes).then_some(life)
    }

    async fn create(&mut self, id: &str) -> Option<()> {
        let body = json!({ "directory": self.directory, "title": "hostile", "id": id });
        let path = format!("/project/{}/session", self.project);
        self.sender.send_until_done("a new session", Method::POST, &path, Some(&body)).await
    }

    async fn send_prompt(&mut self, id: &str, number: usize) -> Option<String> {
        let (message, text) = (message_id(0), self.act.prompt(number));
        let body = json!({ "messageID": message, "parts": [{ "type": "text", "text": text }] });
        let path = format!("/platform/session/{id}/message");
        self.sender.send_until_done("a prompt", Method::POST, &path, Some(&body)).await?;
        Some(message)
    }

    /// Waits until the log has the effect of the prompts so far.
    async fn await_effect(&mut self, id: &str, number: usize, stop: &CancellationToken) {
        let (kind, part, sight) = self.act.effect();
        let undoes = self.act != Act::CountOddly && number % 2 == 1;
        let deadline = Instant::now() + EFFECT;
        while Instant::now() < deadline && !stop.is_cancelled() {
            let settled = |log: &[Value]| {
                let of_kind = log.iter().filter(|event| event["type"] == kind);
                let all: Vec<String> = of_kind.map(Value::to_string).collect();
                (all.len(), all.last().is_some_and(|last| last.contains(part)))
            };
            let gateway = self.sender.random.random_range(0..self.sender.shared.gateways.len());
            if let Ok(log) = self.sender.shared.gateways[gateway].log(id).await {
                let (count, has_it) = settled(&log);
                if count > number {
                    if has_it && !undoes {
                        self.sender.shared.saw(sight);
                    }
                    return;
                }
            }
            sleep(Duration::from_millis(300)).await;
        }
    }

    /// Fills the inbox of a new session that does not work, and deletes it.
    async fn fill_an_inbox(&mut self, id: &str) -> Option<()> {
        self.create(id).await?;
        let path = format!("/platform/session/{id}/message");
        for number in 0..MANY {
            let text = self.act.prompt(number);
            let parts = json!([{ "type": "text", "text": text }]);
            let body = json!({ "messageID": message_id(0), "resume": false, "parts": parts });
            let sent =
                self.sender.send_until_answered("a prompt", &Method::POST, &path, Some(&body));
            let answer = sent.await?;
            match answer.status {
                200..300 => {}
                429 if answer.body.to_string().contains("session.inbox_full") => {
                    self.sender.shared.saw(Sight::InboxFilled);
                    break;
                }
                status => {
                    let body = answer.body;
                    self.sender.shared.violated(format!("{id} refused a prompt: {status} {body}"));
                    break;
                }
            }
        }
        let path = format!("/platform/session/{id}");
        self.sender.send_until_done("a deletion", Method::DELETE, &path, None).await
    }
}
