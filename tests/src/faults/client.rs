//! A client of one session: admits prompts until it is stopped, and retries each until it is acknowledged.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use domain::{Clock, SystemClock};
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tasks::CancellationToken;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::coverage::Sight;
use super::shared::{Acknowledged, Shared, locked};
use super::workload::prompt;
use crate::api::{Api, message_id};

/// How long one try may take.
const TRY: Duration = Duration::from_secs(5);
/// How long a prompt may stay unacknowledged, whatever fails: far longer than any fault lasts.
const PATIENCE: Duration = Duration::from_secs(90);
/// The most acknowledged prompts of a session that wait for their promotion before more are sent.
const MAX_WAITING: usize = 2;

pub(crate) struct Client {
    shared: Arc<Shared>,
    session: usize,
    random: StdRng,
    /// Its acknowledged prompts.
    acknowledged: Vec<String>,
}

impl Client {
    pub(crate) fn new(shared: Arc<Shared>, session: usize, random: StdRng) -> Self {
        Self { shared, session, random, acknowledged: Vec::new() }
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        for number in 0.. {
            if stop.is_cancelled() {
                return;
            }
            self.prompt(number).await;
            if self.random.random_bool(0.15) {
                self.pause(&stop, 100..1_500).await;
                self.interrupt().await;
            }
            self.pause(&stop, 300..2_500).await;
            while self.waiting() >= MAX_WAITING && !stop.is_cancelled() {
                // A prompt that an interrupt has parked waits for a wake. Sometimes the next prompt is that wake.
                if self.random.random_bool(0.01) {
                    break;
                }
                self.pause(&stop, 50..200).await;
            }
        }
    }

    async fn pause(&mut self, stop: &CancellationToken, range_ms: std::ops::Range<u64>) {
        let pause = Duration::from_millis(self.random.random_range(range_ms));
        tokio::select! {
            () = sleep(pause) => {}
            () = stop.cancelled() => {}
        }
    }

    fn waiting(&self) -> usize {
        let followed = locked(&self.shared.followed[self.session]);
        self.acknowledged.iter().filter(|message| !followed.promoted.contains(*message)).count()
    }

    fn gateway(&mut self) -> Api {
        let number = self.random.random_range(0..self.shared.gateways.len());
        self.shared.gateways[number].clone()
    }

    fn path(&self, what: &str) -> String {
        format!("/platform/session/{}/{what}", self.shared.sessions[self.session])
    }

    /// Sends one prompt until it is acknowledged, always as the same message.
    async fn prompt(&mut self, number: usize) {
        let prompt = prompt(self.session, number, &mut self.random);
        for script in prompt.scripts {
            if let Err(error) = self.shared.model.script(script) {
                self.shared.violated(format!("the run's own script is refused: {error}"));
            }
        }
        let message = message_id(0);
        let body = json!({
            "messageID": message, "delivery": prompt.delivery,
            "parts": [{ "type": "text", "text": prompt.text }],
        });
        let dropped = self.random.random_bool(0.4) && self.send_and_leave(&body).await.is_ok();
        if dropped {
            self.shared.saw(Sight::HandlerDropped);
            sleep(Duration::from_millis(self.random.random_range(0..120))).await;
        }
        let begun = Instant::now();
        let mut failures = 0;
        loop {
            let asked_ms = SystemClock::new().now_ms();
            let why = match self.admit(&body).await {
                Ok(Answered::Acknowledged(answer)) => {
                    self.check(&message, &answer, dropped.then_some(asked_ms));
                    break;
                }
                Ok(Answered::Refused(why)) => {
                    return self.shared.violated(format!("the exact retry of {message}: {why}"));
                }
                Ok(Answered::NotNow(why)) => why,
                Err(error) => format!("{error:#}"),
            };
            failures += 1;
            if begun.elapsed() > PATIENCE {
                return self.shared.violated(format!("{message} is not acknowledged: {why}"));
            }
            sleep(Duration::from_millis(self.random.random_range(50..300))).await;
        }
        if failures > 0 {
            self.shared.saw(Sight::AdmittedOnRetry);
        }
        self.acknowledged.push(message.clone());
        locked(&self.shared.acknowledged).push(Acknowledged { session: self.session, message });
    }

    async fn admit(&mut self, body: &Value) -> Result<Answered> {
        let (api, path) = (self.gateway(), self.path("message"));
        let answer = timeout(TRY, api.post(&path, body)).await.context("no answer")??;
        Ok(match answer.status {
            200..300 => Answered::Acknowledged(answer.body),
            400..500 => Answered::Refused(format!("status {}: {}", answer.status, answer.body)),
            other => Answered::NotNow(format!("status {other}: {}", answer.body)),
        })
    }

    /// Checks an acknowledgement. `left_ms` is the time of the retry, if an earlier try went away unread.
    fn check(&self, message: &str, answer: &Value, left_ms: Option<i64>) {
        if answer["info"]["id"] != message {
            self.shared.violated(format!("{message} was acknowledged as {}", answer["info"]["id"]));
        }
        let created = answer["info"]["time"]["created"].as_i64();
        if left_ms.zip(created).is_some_and(|(asked, created)| created < asked) {
            self.shared.saw(Sight::DroppedAndAdmitted);
        }
    }

    /// Sends the whole request, waits a moment or not at all, and closes the connection without reading.
    async fn send_and_leave(&mut self, body: &Value) -> Result<()> {
        let (api, path) = (self.gateway(), self.path("message"));
        let host = api.url().strip_prefix("http://").context("a gateway's URL is http")?;
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            api.key(),
            body.len()
        );
        let mut stream = timeout(TRY, TcpStream::connect(host)).await??;
        stream.write_all(request.as_bytes()).await?;
        sleep(Duration::from_micros(self.random.random_range(0..8_000))).await;
        Ok(())
    }

    /// Asks once. An interrupt that does not arrive was not requested.
    async fn interrupt(&mut self) {
        let (api, path) = (self.gateway(), self.path("abort"));
        match timeout(TRY, api.post(&path, &json!({}))).await {
            Ok(Ok(answer)) if (400..500).contains(&answer.status) => {
                let (status, body) = (answer.status, answer.body);
                self.shared.violated(format!("an interrupt was refused, status {status}: {body}"));
            }
            Ok(Ok(_) | Err(_)) | Err(_) => {}
        }
    }
}

enum Answered {
    Acknowledged(Value),
    Refused(String),
    NotNow(String),
}
