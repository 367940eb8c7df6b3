//! Sends a request until it is answered, whatever fails meanwhile.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use reqwest::Method;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::shared::Shared;
use crate::api::Answer;

/// How long one try may take.
const TRY: Duration = Duration::from_secs(5);
/// How long a request may go unanswered, whatever fails.
const PATIENCE: Duration = Duration::from_secs(90);

/// A sender of requests, each to any gateway.
pub(crate) struct Persistent {
    pub(crate) shared: Arc<Shared>,
    pub(crate) random: StdRng,
    /// Whether a try failed or got no answer since this was last set to false: it may arrive late.
    pub(crate) is_uncertain: bool,
}

impl Persistent {
    pub(crate) fn new(shared: Arc<Shared>, random: StdRng) -> Self {
        Self { shared, random, is_uncertain: false }
    }

    /// Sends a request until its answer is not the service's own failure. Returns `None` if that took too long, which is
    /// a violation.
    pub(crate) async fn send_until_answered(
        &mut self,
        kind: &str,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Option<Answer> {
        let begun = Instant::now();
        loop {
            let gateway = self.random.random_range(0..self.shared.gateways.len());
            let api = &self.shared.gateways[gateway];
            let mut request = api.request(method.clone(), path);
            if let Some(body) = body {
                request = request.json(body);
            }
            let why = match timeout(TRY, api.send(request)).await {
                Ok(Ok(answer)) if answer.status < 500 => return Some(answer),
                Ok(Ok(Answer { status, body })) => format!("status {status}: {body}"),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => "no answer".to_owned(),
            };
            self.is_uncertain = true;
            if begun.elapsed() > PATIENCE {
                self.shared.violated(format!("{kind} at {path} is not answered: {why}"));
                return None;
            }
            sleep(Duration::from_millis(self.random.random_range(50..300))).await;
        }
    }

    /// The same, until it succeeds. Returns `None` if it was refused, which is a violation too.
    pub(crate) async fn send_until_done(
        &mut self,
        kind: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Option<()> {
        let Answer { status, body } = self.send_until_answered(kind, &method, path, body).await?;
        // An earlier try may have deleted it.
        let is_gone = status == 404 && method == Method::DELETE && self.is_uncertain;
        if (200..300).contains(&status) || is_gone {
            return Some(());
        }
        self.shared.violated(format!("{kind} at {path} is refused: {status} {body}"));
        None
    }
}
