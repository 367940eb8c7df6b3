//! Clients that prompt without a pause, over both gateways, each prompt retried until it is answered.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tasks::CancellationToken;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::api::{Api, message_id};
use crate::faults::locked;

/// How long one try may take before the other gateway is asked.
const TRY: Duration = Duration::from_secs(3);

/// The clients, and what they were told.
pub(crate) struct Load {
    pub(crate) sessions: Vec<String>,
    acknowledged: Arc<Mutex<Vec<(String, String)>>>,
    clients: JoinSet<()>,
    stop: CancellationToken,
}

impl Load {
    /// Makes sessions and starts a client for each.
    pub(crate) async fn start(gateways: &[Api], sessions: usize) -> Result<Self> {
        let mut load = Self {
            sessions: Vec::new(),
            acknowledged: Arc::default(),
            clients: JoinSet::new(),
            stop: CancellationToken::new(),
        };
        for number in 0..sessions {
            let api = &gateways[number % gateways.len()];
            // A Location each, so that they spread over the workers.
            let directory = format!("/workspace/{number}");
            let session = api.session(Path::new(&directory)).await?;
            let (gateways, acknowledged) = (gateways.to_vec(), load.acknowledged.clone());
            let (at, stop) = (session.clone(), load.stop.clone());
            load.clients.spawn(async move {
                client(&gateways, number, &at, &acknowledged, &stop).await;
            });
            load.sessions.push(session);
        }
        Ok(load)
    }

    /// Prompts that were acknowledged, each with its session.
    pub(crate) fn acknowledged(&self) -> Vec<(String, String)> {
        locked(&self.acknowledged).clone()
    }

    /// Lets each client finish its prompt.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        self.stop.cancel();
        while let Some(ended) = self.clients.join_next().await {
            ended.context("a client panicked")?;
        }
        Ok(())
    }
}

async fn client(
    gateways: &[Api],
    number: usize,
    session: &str,
    acknowledged: &Mutex<Vec<(String, String)>>,
    stop: &CancellationToken,
) {
    let mut gateway = number % gateways.len();
    while !stop.is_cancelled() {
        let message = message_id(0);
        let body = json!({
            "messageID": message,
            "parts": [{ "type": "text", "text": "say 5 words" }],
        });
        let path = format!("/platform/session/{session}/message");
        loop {
            match timeout(TRY, gateways[gateway].post(&path, &body)).await {
                Ok(Ok(answer)) if (200..300).contains(&answer.status) => break,
                Ok(Ok(_) | Err(_)) | Err(_) => {
                    gateway = (gateway + 1) % gateways.len();
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
        locked(acknowledged).push((session.to_owned(), message.clone()));
        // The next prompt comes when this one is answered, or after a while: an answer is judged by the log.
        let waited = wait_for_idle(&gateways[gateway], session);
        let _slow = timeout(TRY, waited).await;
    }
}

async fn wait_for_idle(api: &Api, session: &str) {
    loop {
        sleep(Duration::from_millis(100)).await;
        let asked = api.get(&format!("/platform/session/{session}")).await;
        if asked.is_ok_and(|answer| answer.body["busy"] == json!(false)) {
            return;
        }
    }
}
