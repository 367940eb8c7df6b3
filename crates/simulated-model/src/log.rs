//! The log of requests: a bounded ring of records, and totals since it was cleared.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::answer::Usage;

/// The most bodies that are counted separately. Further requests only count in the totals.
pub const MAX_HASHES: usize = 100_000;

/// The number of the prompt's characters in a record, even if it keeps the body.
const PROMPT_CHARS: usize = 200;

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It waits, or its answer is being sent.
    Pending,
    /// The whole answer was handed to the connection.
    Answered,
    /// The client closed the connection first (or the server was shut down).
    ClientGone,
    /// A script dropped the connection.
    Cut,
    /// It was answered with an error status.
    Refused,
}

/// One request of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Its number, from 1, in the order of arrival; clearing the log does not start over.
    pub seq: u64,
    /// The time when its whole body was here, in microseconds since 1970, for latencies on one machine.
    pub arrived_us: u64,
    /// The SHA-256 of the exact body, as lower-case hex.
    pub sha256: String,
    /// The size of the body.
    pub body_bytes: u64,
    /// The body, if it is still kept (see [`Options`](crate::Options)). Bytes that are not UTF-8 are replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The first 200 characters of its prompt.
    pub prompt: String,
    /// Tool rounds since that prompt.
    pub rounds: u32,
    /// Headers that distinguish requests. `authorization` and `x-api-key` are `present` or `absent`. `credential` is
    /// an extra entry: the SHA-256 of the key or token, or the scope of an AWS signature.
    pub headers: BTreeMap<String, String>,
    /// Whether a script answered it.
    pub scripted: bool,
    /// The status, once it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The end of the request.
    pub outcome: Outcome,
    /// The usage that was sent to the client, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// Totals since the log was cleared. The ring's bound does not limit them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// All requests for a completion.
    pub requests: u64,
    /// Requests that have not ended.
    pub pending: u64,
    /// Requests that were answered in full.
    pub answered: u64,
    /// Requests whose client went away first.
    pub client_gone: u64,
    /// Requests that a script cut.
    pub cut: u64,
    /// Requests that got an error status.
    pub refused: u64,
    /// The sum of all usage sent to clients: the provider's ledger.
    pub usage: Usage,
    /// Answers with usage.
    pub answers_with_usage: u64,
    /// The number of requests for each body, by its SHA-256 in hex. At most [`MAX_HASHES`] bodies have an entry.
    #[serde(default)]
    pub by_sha256: BTreeMap<String, u64>,
    /// Requests without an entry there because of that bound.
    pub not_in_by_sha256: u64,
}

/// The facts about a request at its arrival.
pub(crate) struct Arrival<'a> {
    pub(crate) arrived_us: u64,
    pub(crate) sha256: [u8; 32],
    pub(crate) body: &'a [u8],
    pub(crate) prompt: String,
    pub(crate) rounds: u32,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) scripted: bool,
}

/// The bounds of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) requests: usize,
    pub(crate) body_bytes: usize,
    pub(crate) total_body_bytes: usize,
}

/// The log. All requests share it.
pub(crate) struct Log {
    bounds: Bounds,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    last_seq: u64,
    /// Raised when the log is cleared, so that earlier requests no longer count.
    era: u64,
    ring: VecDeque<Entry>,
    /// Entries before this number have lost their bodies.
    bodies_from: u64,
    kept_body_bytes: usize,
    totals: Counts,
    by_hash: HashMap<[u8; 32], u64>,
}

struct Entry {
    seq: u64,
    arrived_us: u64,
    sha256: [u8; 32],
    body_bytes: usize,
    body: Option<Box<[u8]>>,
    prompt: String,
    rounds: u32,
    headers: BTreeMap<String, String>,
    scripted: bool,
    status: Option<u16>,
    outcome: Outcome,
    usage: Option<Usage>,
}

impl Log {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, state: Mutex::default(), changes: watch::Sender::new(0) }
    }

    /// Records the arrival of a request. The ticket records its end.
    pub(crate) fn begin(self: &Arc<Self>, arrival: Arrival<'_>) -> Ticket {
        let body_bytes = arrival.body.len();
        let keep = body_bytes <= self.bounds.body_bytes.min(self.bounds.total_body_bytes);
        let body: Option<Box<[u8]>> = keep.then(|| arrival.body.into());
        let mut state = self.lock();
        state.last_seq += 1;
        let seq = state.last_seq;
        state.count(arrival.sha256);
        state.kept_body_bytes += body.as_ref().map_or(0, |body| body.len());
        state.ring.push_back(Entry {
            seq,
            arrived_us: arrival.arrived_us,
            sha256: arrival.sha256,
            body_bytes,
            body,
            prompt: arrival.prompt.chars().take(PROMPT_CHARS).collect(),
            rounds: arrival.rounds,
            headers: arrival.headers,
            scripted: arrival.scripted,
            status: None,
            outcome: Outcome::Pending,
            usage: None,
        });
        state.shrink(self.bounds);
        let era = state.era;
        drop(state);
        self.changed();
        Ticket { log: Arc::clone(self), seq, era, status: None, usage: None, settled: false }
    }

    /// Returns at most `limit` records after `after` whose body (or kept prompt) contains `matching`.
    pub(crate) fn records(&self, after: u64, matching: &str, limit: usize) -> Vec<RequestRecord> {
        let state = self.lock();
        let start = state.ring.partition_point(|entry| entry.seq <= after);
        let fits = |entry: &&Entry| matching.is_empty() || entry.contains(matching);
        state.ring.range(start..).filter(fits).take(limit).map(Entry::record).collect()
    }

    pub(crate) fn counts(&self) -> Counts {
        let state = self.lock();
        let by_sha256 = state.by_hash.iter().map(|(hash, count)| (hex::encode(hash), *count));
        Counts { by_sha256: by_sha256.collect(), ..state.totals.clone() }
    }

    /// Returns the totals without the counts per body.
    pub(crate) fn totals(&self) -> Counts {
        self.lock().totals.clone()
    }

    /// Forgets all records and totals. Pending requests are no longer recorded.
    pub(crate) fn clear(&self) {
        let mut state = self.lock();
        *state = State { last_seq: state.last_seq, era: state.era + 1, ..State::default() };
        drop(state);
        self.changed();
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn changed(&self) {
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    fn settle(&self, ticket: &Ticket, outcome: Outcome) {
        let mut state = self.lock();
        if state.era != ticket.era {
            return;
        }
        state.end(outcome, ticket.usage);
        if let Some(entry) = state.entry(ticket.seq) {
            entry.status = ticket.status;
            entry.outcome = outcome;
            entry.usage = ticket.usage;
        }
        drop(state);
        self.changed();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&mut self, sha256: [u8; 32]) {
        self.totals.requests += 1;
        self.totals.pending += 1;
        if self.by_hash.len() < MAX_HASHES || self.by_hash.contains_key(&sha256) {
            *self.by_hash.entry(sha256).or_insert(0) += 1;
        } else {
            self.totals.not_in_by_sha256 += 1;
        }
    }

    fn end(&mut self, outcome: Outcome, usage: Option<Usage>) {
        self.totals.pending -= 1;
        match outcome {
            Outcome::Pending => self.totals.pending += 1,
            Outcome::Answered => self.totals.answered += 1,
            Outcome::ClientGone => self.totals.client_gone += 1,
            Outcome::Cut => self.totals.cut += 1,
            Outcome::Refused => self.totals.refused += 1,
        }
        if let Some(usage) = usage {
            self.totals.usage.add(usage);
            self.totals.answers_with_usage += 1;
        }
    }

    /// Returns an entry by its number. Numbers in the ring have no gaps.
    fn entry(&mut self, seq: u64) -> Option<&mut Entry> {
        let first = self.ring.front()?.seq;
        self.ring.get_mut(usize::try_from(seq.checked_sub(first)?).ok()?)
    }

    fn shrink(&mut self, bounds: Bounds) {
        while self.ring.len() > bounds.requests {
            if let Some(Entry { body: Some(body), .. }) = self.ring.pop_front() {
                self.kept_body_bytes -= body.len();
            }
        }
        let Some(first) = self.ring.front().map(|entry| entry.seq) else { return };
        self.bodies_from = self.bodies_from.max(first);
        while self.kept_body_bytes > bounds.total_body_bytes && self.bodies_from <= self.last_seq {
            if let Some(body) = self.entry(self.bodies_from).and_then(|entry| entry.body.take()) {
                self.kept_body_bytes -= body.len();
            }
            self.bodies_from += 1;
        }
    }
}

impl Entry {
    fn contains(&self, needle: &str) -> bool {
        match &self.body {
            Some(body) => String::from_utf8_lossy(body).contains(needle),
            None => self.prompt.contains(needle),
        }
    }

    fn record(&self) -> RequestRecord {
        RequestRecord {
            seq: self.seq,
            arrived_us: self.arrived_us,
            sha256: hex::encode(self.sha256),
            body_bytes: self.body_bytes as u64,
            body: self.body.as_ref().map(|body| String::from_utf8_lossy(body).into_owned()),
            prompt: self.prompt.clone(),
            rounds: self.rounds,
            headers: self.headers.clone(),
            scripted: self.scripted,
            status: self.status,
            outcome: self.outcome,
            usage: self.usage,
        }
    }
}

/// A request that has not ended. Dropping it records that the client went away.
pub(crate) struct Ticket {
    log: Arc<Log>,
    seq: u64,
    era: u64,
    status: Option<u16>,
    usage: Option<Usage>,
    settled: bool,
}

impl Ticket {
    /// Notes the status that is about to be sent.
    pub(crate) fn status(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// Notes the usage that is about to be sent.
    pub(crate) fn usage(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    pub(crate) fn settle(&mut self, outcome: Outcome) {
        self.settled = true;
        self.log.settle(self, outcome);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.settled {
            self.log.settle(self, Outcome::ClientGone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(requests: usize, total_body_bytes: usize) -> Arc<Log> {
        Arc::new(Log::new(Bounds { requests, body_bytes: 10, total_body_bytes }))
    }

    fn arrive(log: &Arc<Log>, body: &'static str) -> Ticket {
        log.begin(Arrival {
            arrived_us: 7,
            sha256: [u8::try_from(body.len()).expect("short"); 32],
            body: body.as_bytes(),
            prompt: format!("prompt of {body}"),
            rounds: 0,
            headers: BTreeMap::new(),
            scripted: false,
        })
    }

    #[test]
    fn the_ring_and_its_bodies_are_bounded() {
        let log = log(3, 12);
        for body in ["aaaa", "bbbb", "cccc", "dddd-dddd-dddd", "eeeeee"] {
            arrive(&log, body).settle(Outcome::Answered);
        }
        let kept: Vec<_> =
            log.records(0, "", 9).into_iter().map(|record| (record.seq, record.body)).collect();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(kept, [(3, text("cccc")), (4, None), (5, text("eeeeee"))]);
        arrive(&log, "ffffffffff").settle(Outcome::Answered); // 6 + 10 bytes are too many
        let kept: Vec<_> = log.records(0, "", 9).into_iter().map(|record| record.body).collect();
        assert_eq!(kept, [None, None, text("ffffffffff")]);
        assert_eq!(log.records(4, "eee", 9).len(), 1, "found by its prompt");
        assert_eq!(log.counts().requests, 6);
    }

    #[test]
    fn what_began_before_a_clear_is_not_counted_after() {
        let log = log(3, 12);
        let old = arrive(&log, "a");
        log.clear();
        let new = arrive(&log, "b");
        drop(old);
        let counts = log.totals();
        assert_eq!((counts.requests, counts.pending, counts.client_gone), (1, 1, 0));
        drop(new);
        assert_eq!(log.totals().client_gone, 1);
        assert_eq!(log.records(0, "", 9)[0].seq, 2);
    }
}
