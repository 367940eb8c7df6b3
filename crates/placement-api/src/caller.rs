use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use reqwest::{Client, Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::candidates::Candidates;
use crate::{NotLeader, PASS_ON, PlacementError};

/// The largest answer, in bytes. A worker's leases take about 130 bytes each.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// The wait for a member before the next one is asked too. A member in the same network answers in a few
/// milliseconds, and a dead one must not use up a heartbeat's 400.
const HEDGE: Duration = Duration::from_millis(60);
/// The wait for the leader before another member is asked to pass the call on to it.
const PASS_ON_AFTER: Duration = Duration::from_millis(150);

/// The timeouts of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// The timeout of one request to one member.
    pub(crate) each: Duration,
    /// The timeout of the whole call.
    pub(crate) whole: Duration,
}

/// Finds the leader among the members.
///
/// It asks the last known leader first, then any leader that a member names, then the others, starting with
/// the last one that answered. Each is asked while earlier requests are still under way. A call may reach
/// several members; only the leader acts on it, and acting twice does no harm for any of these calls.
pub(crate) struct Caller {
    client: Client,
    peers: Vec<String>,
    secret: Option<String>,
    found: Mutex<Found>,
}

/// The members that the last call found.
#[derive(Default)]
struct Found {
    /// The last leader. Kept even if it does not answer in time, because asking it first costs at most
    /// [`HEDGE`].
    leader: Option<String>,
    /// The index of the last member that answered at all.
    answered: usize,
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
        Self { client, peers, secret, found: Mutex::default() }
    }

    pub(crate) fn peers(&self) -> &[String] {
        &self.peers
    }

    /// Asks the leader, within `patience.whole`.
    pub(crate) async fn lead<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
        patience: Patience,
    ) -> Result<T, PlacementError> {
        let begun = Instant::now();
        let end = begun + patience.whole;
        let mut candidates = self.candidates(begun);
        let mut under_way = FuturesUnordered::new();
        let mut tried = Tried::default();
        // Only one at a time, because the leader may be slow from load.
        let mut passing = false;
        let mut next_at = begun;
        loop {
            let now = Instant::now();
            if now >= end {
                return Err(unreachable(&self.peers, &tried));
            }
            if let Some(at) = candidates.pick(now, now >= next_at || under_way.is_empty()) {
                let pass_on = !passing && now >= begun + PASS_ON_AFTER;
                passing |= pass_on;
                let limit = patience.each.min(end - now);
                let peer = candidates.url(at).to_owned();
                under_way.push(async move {
                    let request = self.request(Method::POST, &peer, path, Some(body), limit);
                    let request = if pass_on { request.header(PASS_ON, "1") } else { request };
                    (at, pass_on, ask::<T>(request).await)
                });
                next_at = now + HEDGE;
                continue;
            }
            let wait = candidates.free_at().map_or(end, |free| free.max(next_at)).min(end);
            let (at, passed, answer) = tokio::select! {
                Some(answered) = under_way.next() => answered,
                () = tokio::time::sleep_until(wait) => continue,
            };
            passing &= !passed;
            let peer = candidates.url(at).to_owned();
            match answer {
                Answer::Done(answer) => {
                    self.remember(&peer, (!passed).then_some(&peer));
                    return Ok(answer);
                }
                Answer::Refused(error) => {
                    self.remember(&peer, (!passed).then_some(&peer));
                    return Err(error);
                }
                Answer::Elsewhere(leader) => {
                    self.remember(&peer, None);
                    self.forget(&peer);
                    tried.note_answer(&peer, "not the leader".to_owned());
                    let pass_at = begun + PASS_ON_AFTER;
                    candidates.elsewhere(at, leader.as_deref(), Instant::now(), pass_at);
                }
                Answer::Failed(reason) => {
                    tried.note_answer(&peer, reason);
                    candidates.failed(at, Instant::now());
                }
            }
        }
    }

    /// Asks all members at once whether they accept the secret: `None` if none answers in time. A member of the build
    /// before this one has no such route, and refuses a wrong secret before it says so.
    pub(crate) async fn prove_secret(&self, limit: Duration) -> Option<bool> {
        let ask = |peer| {
            let request = self.request(Method::GET, peer, "/placement/secret", None::<&()>, limit);
            async move { request.send().await.ok().map(|answer| answer.status()) }
        };
        let mut asked: FuturesUnordered<_> = self.peers.iter().map(|peer| ask(peer)).collect();
        let mut found = None;
        while let Some(status) = asked.next().await {
            match status {
                Some(StatusCode::UNAUTHORIZED) => found = found.or(Some(false)),
                Some(status) if status.is_success() || status == StatusCode::NOT_FOUND => {
                    return Some(true);
                }
                Some(_) | None => {}
            }
        }
        found
    }

    /// Asks one member, whether it leads or not.
    pub(crate) async fn one<T: DeserializeOwned>(
        &self,
        method: Method,
        peer: &str,
        path: &str,
        body: Option<&(impl Serialize + Sync)>,
        limit: Duration,
    ) -> Result<T, PlacementError> {
        match ask(self.request(method, peer, path, body, limit)).await {
            Answer::Done(answer) => Ok(answer),
            Answer::Refused(error) => Err(error),
            Answer::Elsewhere(_) => {
                Err(unreachable(&self.peers, &Tried::from_one(peer, "not the leader".to_owned())))
            }
            Answer::Failed(reason) => Err(unreachable(&self.peers, &Tried::from_one(peer, reason))),
        }
    }

    fn request(
        &self,
        method: Method,
        peer: &str,
        path: &str,
        body: Option<&(impl Serialize + Sync)>,
        limit: Duration,
    ) -> reqwest::RequestBuilder {
        let mut request = self.client.request(method, format!("{peer}{path}")).timeout(limit);
        if let Some(secret) = &self.secret {
            request = request.bearer_auth(secret);
        }
        match body {
            Some(body) => request.json(body),
            None => request,
        }
    }

    /// Returns the members to ask, in order.
    fn candidates(&self, now: Instant) -> Candidates {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, from) = self.peers.split_at(found.answered.min(self.peers.len()));
        Candidates::new(found.leader.iter().chain(from).chain(before), now)
    }

    /// Records that `peer` answered; if it is `leader`, as the leader.
    fn remember(&self, peer: &str, leader: Option<&String>) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = self.peers.iter().position(|known| known == peer) {
            found.answered = at;
        }
        if let Some(leader) = leader {
            found.leader = Some(leader.clone());
        }
    }

    /// Records that `peer` does not lead.
    fn forget(&self, peer: &str) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.leader.take_if(|leader| leader == peer);
    }
}

async fn ask<T: DeserializeOwned>(request: reqwest::RequestBuilder) -> Answer<T> {
    match request.send().await {
        Ok(response) => match answer(response).await {
            Ok(answer) => answer,
            Err(error) => Answer::Failed(reason(&error)),
        },
        Err(error) => Answer::Failed(reason(&error)),
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
            // Another member may succeed.
            Ok(PlacementError::Unreachable { reason }) => Answer::Failed(reason),
            Ok(error) => Answer::Refused(error),
            Err(_) => Answer::Failed(format!("answered {status}")),
        }
    })
}

/// The reason of a member whose answer did not come.
const LATE: &str = "did not answer in time";

fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        LATE.to_owned()
    } else if error.is_connect() {
        "does not accept connections".to_owned()
    } else {
        error.to_string()
    }
}

/// The members' answers, of each the last one.
#[derive(Default)]
struct Tried(Vec<(String, String)>);

impl Tried {
    fn from_one(peer: &str, reason: String) -> Self {
        Self(vec![(peer.to_owned(), reason)])
    }

    fn note_answer(&mut self, peer: &str, reason: String) {
        // The last request of a call has little time left: an answer from before says more.
        if reason == LATE && self.0.iter().any(|(known, _)| known == peer) {
            return;
        }
        self.0.retain(|(known, _)| known != peer);
        self.0.push((peer.to_owned(), reason));
        self.0.drain(..self.0.len().saturating_sub(8));
    }

    /// Returns each reason once, with the members that gave it.
    fn make_sentence(&self) -> String {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for (peer, reason) in &self.0 {
            match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, peers)) => peers.push(peer),
                None => reasons.push((reason.as_str(), vec![peer.as_str()])),
            }
        }
        let each = reasons.into_iter().map(|(why, peers)| format!("{}: {why}", peers.join(", ")));
        each.collect::<Vec<_>>().join("; ")
    }
}

fn unreachable(peers: &[String], tried: &Tried) -> PlacementError {
    let reason = if peers.is_empty() {
        "no placement member is configured; set --placement-peers".to_owned()
    } else if tried.0.is_empty() {
        "out of time before any member was asked".to_owned()
    } else {
        tried.make_sentence()
    };
    PlacementError::Unreachable { reason }
}
