//! Prompts that a released client waits for, and the frames that it may have missed.
//!
//! `opencode run` opens its event stream and sends its prompt at the same time, on two connections. A short turn can
//! end before the stream is open. The stream therefore begins with the frames of recently admitted prompts that are
//! held here. Admission itself never waits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{OrgId, Seq, SessionId, SessionRef};
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::frame::StockFrame;

/// How long after its admission a new stream still gets a prompt's frames.
const REPLAYED_FOR: Duration = Duration::from_secs(2);
/// The most frames kept for one held prompt. A later stream continues without the rest.
const MAX_FRAMES: usize = 512;

#[derive(Debug)]
struct HeldPrompt {
    org: OrgId,
    session: SessionId,
    /// The end of the session's log before the prompt was admitted.
    before: Seq,
    since: Instant,
    frames: Vec<StockFrame>,
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
        self.held.values().filter(move |it| it.org == org).filter(recent)
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
            org: at.org,
            session: at.session.clone(),
            before,
            since: Instant::now(),
            frames: Vec::new(),
        };
        prompts.held.insert(number, prompt);
        HoldGuard { prompts: self.clone(), number }
    }

    /// Sends `frame` to the listeners, and keeps it for a stream that is still opening.
    pub(super) fn send(
        &self,
        org: OrgId,
        session: &SessionId,
        frames: &broadcast::Sender<StockFrame>,
        frame: StockFrame,
    ) {
        // Under the lock, a new stream gets this frame exactly once: from here or from its receiver.
        let mut prompts = self.lock();
        let replayed_for = prompts.replayed_for;
        let held = prompts.held.values_mut().filter(|it| it.org == org && it.session == *session);
        for prompt in held {
            if prompt.since.elapsed() >= replayed_for {
                prompt.frames = Vec::new();
            } else if prompt.frames.len() < MAX_FRAMES {
                prompt.frames.push(frame.clone());
            }
        }
        // An error means that nobody listens at the moment.
        let _ = frames.send(frame);
    }

    /// Returns a receiver of all frames from now on, and the earlier frames of recently admitted prompts.
    pub(super) fn subscribe(
        &self,
        org: OrgId,
        frames: &broadcast::Sender<StockFrame>,
    ) -> (Vec<StockFrame>, broadcast::Receiver<StockFrame>) {
        let prompts = self.lock();
        let mut replayed: HashMap<&SessionId, &HeldPrompt> = HashMap::new();
        for prompt in prompts.recent(org) {
            // Of two prompts of one session, the older one has the frames of both.
            let longest = replayed.entry(&prompt.session).or_insert(prompt);
            if prompt.before < longest.before {
                *longest = prompt;
            }
        }
        let replayed = replayed.values().flat_map(|prompt| prompt.frames.iter().cloned()).collect();
        (replayed, frames.subscribe())
    }

    /// Returns where a new feed must resume the sessions of recently admitted prompts.
    pub(super) fn taken_up(&self, org: OrgId) -> HashMap<SessionId, Seq> {
        let mut from = HashMap::new();
        for prompt in self.lock().recent(org) {
            let before = from.entry(prompt.session.clone()).or_insert(prompt.before);
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
    use bytes::Bytes;

    use super::*;

    fn frame(text: &'static str) -> StockFrame {
        StockFrame::new("/d".into(), text.into(), Bytes::new())
    }

    fn texts(frames: &[StockFrame]) -> Vec<&[u8]> {
        frames.iter().map(|frame| frame.local().as_ref()).collect()
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
        let (prompts, sender) = (Arc::new(HeldPrompts::default()), broadcast::Sender::new(8));
        let (ours, other) = (at("ses_a"), at("ses_b"));
        let _held = prompts.hold(&ours, Seq(3));
        let _again = prompts.hold(&ours, Seq(5));
        prompts.send(ours.org, &ours.session, &sender, frame("one"));
        prompts.send(other.org, &other.session, &sender, frame("of nobody who waits"));
        let (replayed, mut live) = prompts.subscribe(ours.org, &sender);
        assert_eq!(texts(&replayed), [b"one"]);
        prompts.send(ours.org, &ours.session, &sender, frame("two"));
        assert_eq!(live.recv().await.expect("a frame").local(), "two");
        assert_eq!(prompts.taken_up(ours.org), HashMap::from([(ours.session.clone(), Seq(3))]));
        assert!(prompts.subscribe(OrgId::random(), &sender).0.is_empty());
    }

    #[test]
    fn an_older_prompt_is_not_replayed_and_keeps_nothing() {
        let prompts = Arc::new(HeldPrompts::replaying(Duration::ZERO));
        let sender = broadcast::Sender::new(8);
        let ours = at("ses_a");
        let held = prompts.hold(&ours, Seq(0));
        prompts.send(ours.org, &ours.session, &sender, frame("one"));
        assert!(prompts.lock().held.values().all(|prompt| prompt.frames.is_empty()));
        assert!(prompts.subscribe(ours.org, &sender).0.is_empty());
        assert!(prompts.taken_up(ours.org).is_empty());
        drop(held);
        assert!(prompts.lock().held.is_empty());
    }
}
