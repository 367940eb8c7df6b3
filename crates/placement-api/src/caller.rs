use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Client, Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::{NotLeader, PlacementError};

/// A larger answer is refused: a worker's leases are some 130 bytes each.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// The pause before the members are asked again, when none of them leads.
const PAUSE: Duration = Duration::from_millis(50);

/// How long to try.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// For one request to one member.
    pub(crate) each: Duration,
    /// For all of it.
    pub(crate) whole: Duration,
}

/// Finds the leader among the members: the last one known first, then whom a member names, then the rest.
pub(crate) struct Caller {
    client: Client,
    peers: Vec<String>,
    secret: Option<String>,
    leader: Mutex<Option<String>>,
}

enum Answer<T> {
    Done(T),
    Refused(PlacementError),
    Elsewhere(Option<String>),
    Failed(String),
}

impl Caller {
    pub(crate) fn new(peers: Vec<String>, secret: Option<String>) -> Self {
        let client = Client::builder()
            .connect_timeout(Duration::from_millis(500))
            .pool_idle_timeout(Duration::from_secs(30))
            .tcp_nodelay(true)
            .no_proxy()
            .build()
            .expect("no option of this client can fail");
        let peers = peers.into_iter().map(|url| url.trim_end_matches('/').to_owned()).collect();
        Self { client, peers, secret, leader: Mutex::new(None) }
    }

    pub(crate) fn peers(&self) -> &[String] {
        &self.peers
    }

    /// Asks the leader. Every member is asked at most once a round; rounds end with `patience.whole`.
    pub(crate) async fn lead<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
        patience: Patience,
    ) -> Result<T, PlacementError> {
        let end = Instant::now() + patience.whole;
        let mut tried = Vec::new();
        loop {
            let mut asked: Vec<String> = Vec::new();
            let mut next = self.known_leader();
            while let Some(peer) = next
                .take()
                .or_else(|| self.peers.iter().find(|peer| !asked.contains(peer)).cloned())
            {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(unreachable(&self.peers, &tried));
                }
                let limit = patience.each.min(left);
                asked.push(peer.clone());
                match self.ask(Method::POST, &peer, path, Some(body), limit).await {
                    Answer::Done(answer) => {
                        self.remember(Some(peer));
                        return Ok(answer);
                    }
                    Answer::Refused(error) => {
                        self.remember(Some(peer));
                        return Err(error);
                    }
                    Answer::Elsewhere(leader) => {
                        self.remember(None);
                        tried.push(format!("{peer}: not the leader"));
                        // Only who was not asked yet: two members may each think that the other leads.
                        next = leader.filter(|url| !asked.contains(url));
                    }
                    Answer::Failed(reason) => {
                        self.remember(None);
                        tried.push(format!("{peer}: {reason}"));
                    }
                }
                tried.drain(..tried.len().saturating_sub(8));
            }
            if Instant::now() + PAUSE >= end {
                return Err(unreachable(&self.peers, &tried));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Asks one member, leader or not.
    pub(crate) async fn one<T: DeserializeOwned>(
        &self,
        method: Method,
        peer: &str,
        path: &str,
        body: Option<&(impl Serialize + Sync)>,
        limit: Duration,
    ) -> Result<T, PlacementError> {
        match self.ask(method, peer, path, body, limit).await {
            Answer::Done(answer) => Ok(answer),
            Answer::Refused(error) => Err(error),
            Answer::Elsewhere(_) => {
                Err(unreachable(&self.peers, &[format!("{peer}: not the leader")]))
            }
            Answer::Failed(reason) => Err(unreachable(&self.peers, &[format!("{peer}: {reason}")])),
        }
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        peer: &str,
        path: &str,
        body: Option<&(impl Serialize + Sync)>,
        limit: Duration,
    ) -> Answer<T> {
        let mut request = self.client.request(method, format!("{peer}{path}")).timeout(limit);
        if let Some(secret) = &self.secret {
            request = request.bearer_auth(secret);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        match request.send().await {
            Ok(response) => match answer(response).await {
                Ok(answer) => answer,
                Err(error) => Answer::Failed(reason(&error)),
            },
            Err(error) => Answer::Failed(reason(&error)),
        }
    }

    fn known_leader(&self) -> Option<String> {
        self.leader.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn remember(&self, leader: Option<String>) {
        *self.leader.lock().unwrap_or_else(PoisonError::into_inner) = leader;
    }
}

async fn answer<T: DeserializeOwned>(
    mut response: reqwest::Response,
) -> Result<Answer<T>, reqwest::Error> {
    let status = response.status();
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if bytes.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Ok(Answer::Failed(format!("answered more than {MAX_ANSWER_BYTES} bytes")));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(if status.is_success() {
        match serde_json::from_slice(&bytes) {
            Ok(answer) => Answer::Done(answer),
            Err(error) => Answer::Failed(format!("answered what cannot be read: {error}")),
        }
    } else if status == StatusCode::MISDIRECTED_REQUEST {
        let named = serde_json::from_slice::<NotLeader>(&bytes).ok();
        Answer::Elsewhere(named.and_then(|named| named.leader_url))
    } else if status == StatusCode::UNAUTHORIZED {
        Answer::Failed(
            "refused the cluster secret; give every role the same --cluster-secret".into(),
        )
    } else {
        match serde_json::from_slice(&bytes) {
            // Another member may be able to do it.
            Ok(PlacementError::Unreachable { reason }) => Answer::Failed(reason),
            Ok(error) => Answer::Refused(error),
            Err(_) => Answer::Failed(format!("answered {status}")),
        }
    })
}

fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        "did not answer in time".to_owned()
    } else if error.is_connect() {
        "does not accept connections".to_owned()
    } else {
        error.to_string()
    }
}

fn unreachable(peers: &[String], tried: &[String]) -> PlacementError {
    let reason = if peers.is_empty() {
        "no placement member is configured; set --placement-peers".to_owned()
    } else if tried.is_empty() {
        "out of time before any member was asked".to_owned()
    } else {
        tried.join("; ")
    };
    PlacementError::Unreachable { reason }
}
