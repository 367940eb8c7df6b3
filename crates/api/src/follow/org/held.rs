//! Prompts that a released client waits for, and the frames that it may have missed.
//!
//! `opencode run` opens its event stream and sends its prompt at the same time, on two connections. A short turn can
//! end before the stream is open. The stream therefore begins with the frames of recently admitted prompts that are
//! held here. Admission itself never waits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{OrgId, Seq, SessionId, SessionRef};
use tokio::time::Instant;

use super::frame::StockFrame;
use crate::follow::queue::{QueueReader, QueueSender, Weighed};

/// How long after its admission a new stream still gets a prompt's frames.
const REPLAYED_FOR: Duration = Duration::from_secs(2);
/// The most bytes of frames kept for one held prompt, and for all of an organisation. A later stream continues without
/// the rest.
const MAX_BYTES: usize = 1024 * 1024;
const MAX_ORG_BYTES: usize = 32 * MAX_BYTES;
/// The most bytes of frames with which a stream begins.
const MAX_REPLAYED_BYTES: usize = 4 * MAX_BYTES;

#[derive(Debug)]
struct HeldPrompt {
    at: SessionRef,
    /// The end of the session's log before the prompt was admitted.
    before: Seq,
    since: Instant,
    frames: Vec<StockFrame>,
    /// The weight of the frames.
    bytes: usize,
}

#[derive(Debug)]
struct Prompts {
    next: u64,
    held: HashMap<u64, HeldPrompt>,
    replayed_for: Duration,
}

impl Prompts {
    /// Returns the recently admitted prompts of `org`.
    fn recent(&self, org: OrgId) -> impl Iterator<Item = &HeldPrompt> {
        let recent = move |it: &&HeldPrompt| it.since.elapsed() < self.replayed_for;
        self.held.values().filter(move |it| it.at.org == org).filter(recent)
    }
}

/// The prompts of released clients that this gateway holds.
#[derive(Debug)]
pub(super) struct HeldPrompts(Mutex<Prompts>);

impl Default for HeldPrompts {
    fn default() -> Self {
        Self::replaying(REPLAYED_FOR)
    }
}

impl HeldPrompts {
    fn replaying(replayed_for: Duration) -> Self {
        Self(Mutex::new(Prompts { next: 0, held: HashMap::new(), replayed_for }))
    }

    /// Keeps the frames of `at` until the guard is dropped. `before` is the current end of its log.
    pub(super) fn hold(self: &Arc<Self>, at: &SessionRef, before: Seq) -> HoldGuard {
        let mut prompts = self.lock();
        prompts.next += 1;
        let number = prompts.next;
        let prompt = HeldPrompt {
            at: at.clone(),
            before,
            since: Instant::now(),
            frames: Vec::new(),
            bytes: 0,
        };
        prompts.held.insert(number, prompt);
        HoldGuard { prompts: self.clone(), number }
    }

    /// Sends `frame` to the listeners, and keeps it for a stream that is still opening.
    pub(super) fn send(
        &self,
        org: OrgId,
        session: &SessionId,
        frames: &QueueSender<StockFrame>,
        frame: StockFrame,
    ) {
        // Under the lock, a new stream gets this frame exactly once: from here or from its receiver.
        let mut prompts = self.lock();
        let replayed_for = prompts.replayed_for;
        let mut org_bytes = 0;
        for prompt in prompts.held.values_mut().filter(|it| it.at.org == org) {
            if prompt.since.elapsed() >= replayed_for {
                prompt.frames = Vec::new();
                prompt.bytes = 0;
            }
            org_bytes += prompt.bytes;
        }
        let weight = frame.weight();
        let is_of = |it: &&mut HeldPrompt| it.at.org == org && it.at.session == *session;
        let held = prompts.held.values_mut().filter(is_of);
        for prompt in held.filter(|it| it.since.elapsed() < replayed_for) {
            let fits = prompt.bytes + weight <= MAX_BYTES && org_bytes + weight <= MAX_ORG_BYTES;
            if fits {
                prompt.frames.push(frame.clone());
                prompt.bytes += weight;
                org_bytes += weight;
            } else {
                prompt.bytes = MAX_BYTES; // no later frame follows a gap
            }
        }
        frames.send(frame);
    }

    /// Returns a receiver of all frames from now on, and the earlier frames of recently admitted prompts.
    pub(super) fn subscribe(
        &self,
        org: OrgId,
        frames: &QueueSender<StockFrame>,
    ) -> (Vec<StockFrame>, QueueReader<StockFrame>) {
        let prompts = self.lock();
        let mut replayed: HashMap<&SessionId, &HeldPrompt> = HashMap::new();
        for prompt in prompts.recent(org) {
            // Of two prompts of one session, the older one has the frames of both.
            let longest = replayed.entry(&prompt.at.session).or_insert(prompt);
            if prompt.before < longest.before {
                *longest = prompt;
            }
        }
        let mut bytes = 0;
        let fits = |prompt: &&&HeldPrompt| {
            let fits = bytes + prompt.bytes <= MAX_REPLAYED_BYTES;
            bytes += if fits { prompt.bytes } else { 0 };
            fits
        };
        let prompts = replayed.values().filter(fits);
        let replayed = prompts.flat_map(|prompt| prompt.frames.iter().cloned()).collect();
        (replayed, frames.subscribe())
    }

    /// Returns the sessions of recently admitted prompts, and where a new feed must resume them.
    pub(super) fn taken_up(&self, org: OrgId) -> HashMap<SessionId, (SessionRef, Seq)> {
        let mut from = HashMap::new();
        for prompt in self.lock().recent(org) {
            let new = || (prompt.at.clone(), prompt.before);
            let (_, before) = from.entry(prompt.at.session.clone()).or_insert_with(new);
            *before = prompt.before.min(*before);
        }
        from
    }

    fn lock(&self) -> MutexGuard<'_, Prompts> {
        // Nothing below panics under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guard that keeps a held prompt's frames until it is dropped.
#[derive(Debug)]
pub(crate) struct HoldGuard {
    prompts: Arc<HeldPrompts>,
    number: u64,
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        self.prompts.lock().held.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::frame::FrameSource;
    use super::*;

    fn frame(text: &str) -> StockFrame {
        StockFrame::new(FrameSource::new("/d".into(), "prj_a"), &json!(text))
    }

    fn text(frame: &StockFrame) -> String {
        let bytes = frame.local().expect("it is small");
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    fn texts(frames: &[StockFrame]) -> Vec<String> {
        frames.iter().map(text).collect()
    }

    fn sender() -> QueueSender<StockFrame> {
        QueueSender::new(&Arc::default(), OrgId::FIRST)
    }

    fn at(session: &str) -> SessionRef {
        SessionRef {
            org: OrgId::FIRST,
            location: "loc_a".parse().expect("an id"),
            session: session.parse().expect("an id"),
        }
    }

    #[tokio::test]
    async fn a_late_stream_has_a_held_prompts_frames_once() {
        let (prompts, sender) = (Arc::new(HeldPrompts::default()), sender());
        let (ours, other) = (at("ses_a"), at("ses_b"));
        let _held = prompts.hold(&ours, Seq(3));
        let _again = prompts.hold(&ours, Seq(5));
        prompts.send(ours.org, &ours.session, &sender, frame("one"));
        prompts.send(other.org, &other.session, &sender, frame("of nobody who waits"));
        let (replayed, mut live) = prompts.subscribe(ours.org, &sender);
        assert_eq!(texts(&replayed), ["data: \"one\"\n\n"]);
        prompts.send(ours.org, &ours.session, &sender, frame("two"));
        assert_eq!(text(&live.recv().await.expect("a frame")), "data: \"two\"\n\n");
        let taken_up = HashMap::from([(ours.session.clone(), (ours.clone(), Seq(3)))]);
        assert_eq!(prompts.taken_up(ours.org), taken_up);
        assert!(prompts.subscribe(OrgId::random(), &sender).0.is_empty());
    }

    #[test]
    fn an_older_prompt_is_not_replayed_and_keeps_nothing() {
        let prompts = Arc::new(HeldPrompts::replaying(Duration::ZERO));
        let sender = sender();
        let ours = at("ses_a");
        let held = prompts.hold(&ours, Seq(0));
        prompts.send(ours.org, &ours.session, &sender, frame("one"));
        assert!(prompts.lock().held.values().all(|prompt| prompt.frames.is_empty()));
        assert!(prompts.subscribe(ours.org, &sender).0.is_empty());
        assert!(prompts.taken_up(ours.org).is_empty());
        drop(held);
        assert!(prompts.lock().held.is_empty());
    }

    // Finding core-3 H2: 512 frames of a megabyte each were kept for every held prompt.
    #[test]
    fn a_held_prompts_frames_are_bounded_by_bytes() {
        let (prompts, sender, ours) = (Arc::new(HeldPrompts::default()), sender(), at("ses_a"));
        let _held = prompts.hold(&ours, Seq(0));
        let large = "x".repeat(60_000);
        for _ in 0..100 {
            prompts.send(ours.org, &ours.session, &sender, frame(&large));
        }
        let (replayed, _live) = prompts.subscribe(ours.org, &sender);
        let bytes: usize = replayed.iter().map(Weighed::weight).sum();
        assert!((MAX_BYTES / 2..=MAX_BYTES).contains(&bytes), "{bytes}");
    }
}
