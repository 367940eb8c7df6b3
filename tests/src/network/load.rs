//! Clients that prompt without a pause over both gateways, and retry each prompt until it is answered.

use std::collections::BTreeMap;
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

/// The time between two checks whether a session is idle. The load must leave some CPU for the cluster.
const POLL: Duration = Duration::from_millis(250);
/// How long one try may take before the other gateway is asked.
const TRY: Duration = Duration::from_secs(3);

/// The number of prompts after which a client starts a new session: a request contains the whole conversation, and a
/// verdict over endless ones takes longer than the faults.
const PROMPTS: usize = 60;

/// The message ids of acknowledged prompts, by session.
type Acknowledged = BTreeMap<String, Vec<String>>;

/// The clients, and their acknowledged prompts.
pub(crate) struct Load {
    acknowledged: Arc<Mutex<Acknowledged>>,
    clients: JoinSet<()>,
    stop: CancellationToken,
}

impl Load {
    /// Starts clients, each with its own Location, so that they spread over the workers.
    pub(crate) fn start(gateways: &[Api], clients: usize) -> Self {
        let mut load = Self {
            acknowledged: Arc::default(),
            clients: JoinSet::new(),
            stop: CancellationToken::new(),
        };
        for number in 0..clients {
            let (gateways, acknowledged) = (gateways.to_vec(), load.acknowledged.clone());
            let stop = load.stop.clone();
            load.clients.spawn(async move {
                client(&gateways, number, &acknowledged, &stop).await;
            });
        }
        load
    }

    /// Returns the acknowledged prompts.
    pub(crate) fn acknowledged(&self) -> Acknowledged {
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
    acknowledged: &Mutex<Acknowledged>,
    stop: &CancellationToken,
) {
    let directory = format!("/workspace/{number}");
    let mut gateway = number % gateways.len();
    while !stop.is_cancelled() {
        let made = timeout(TRY, gateways[gateway].session(Path::new(&directory))).await;
        let Ok(Ok(session)) = made else {
            gateway = (gateway + 1) % gateways.len();
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        for _ in 0..PROMPTS {
            if stop.is_cancelled() {
                return;
            }
            let message = prompt(gateways, &mut gateway, &session).await;
            locked(acknowledged).entry(session.clone()).or_default().push(message);
            // Continue when this prompt is answered, or after a while. The log decides whether it was.
            let waited = wait_for_idle(&gateways[gateway], &session);
            let _slow = timeout(TRY, waited).await;
        }
    }
}

/// Sends one prompt under one id until a gateway acknowledges it.
async fn prompt(gateways: &[Api], gateway: &mut usize, session: &str) -> String {
    let message = message_id(0);
    let body = json!({
        "messageID": message,
        "parts": [{ "type": "text", "text": "say 5 words" }],
    });
    let path = format!("/platform/session/{session}/message");
    loop {
        match timeout(TRY, gateways[*gateway].post(&path, &body)).await {
            Ok(Ok(answer)) if (200..300).contains(&answer.status) => return message,
            Ok(Ok(_) | Err(_)) | Err(_) => {
                *gateway = (*gateway + 1) % gateways.len();
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn wait_for_idle(api: &Api, session: &str) {
    loop {
        sleep(POLL).await;
        let asked = api.get(&format!("/platform/session/{session}")).await;
        if asked.is_ok_and(|answer| answer.body["busy"] == json!(false)) {
            return;
        }
    }
}
