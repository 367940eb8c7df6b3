//! Tests of the System Context Registry: the same bytes with any timing, and contributions that come and go.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use context::{
    ContextSource, DuplicateKey, Loaded, Producer, Reconciled, RegisterError, Registry, SourceKey,
    SystemContext,
};
use proptest::prelude::*;

#[derive(Debug, Clone)]
struct Word(String);

impl ContextSource for Word {
    type Told = String;

    fn told(&self) -> String {
        self.0.clone()
    }

    fn baseline(&self) -> String {
        format!("there is {}", self.0)
    }

    fn update(&self, told: &String) -> String {
        format!("{told} became {}", self.0)
    }

    fn removal(&self) -> Option<String> {
        Some(format!("{} is gone", self.0))
    }
}

/// A producer that gives words under its own keys after some polls.
struct Slow {
    words: Vec<(SourceKey, Loaded<Word>)>,
    polls: u8,
}

#[async_trait]
impl Producer<()> for Slow {
    async fn observe(&self, _at: &()) -> SystemContext {
        let mut left = self.polls;
        futures::future::poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        let words = self.words.iter().cloned();
        SystemContext::combine(words.map(|(key, word)| SystemContext::make(key, word)))
            .expect("keys of its own")
    }
}

fn key(text: &str) -> SourceKey {
    SourceKey::new(text).expect("a key")
}

fn slow(contribution: &str, word: &str, polls: u8) -> Arc<dyn Producer<()>> {
    let word = Loaded::Value(Word(word.to_owned()));
    Arc::new(Slow { words: vec![(key(contribution), word)], polls })
}

/// Runs a future to its end; it must never wait for I/O.
fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
    }
}

fn baseline(registry: &Registry<()>) -> String {
    let seen = run(registry.observe(&())).expect("distinct keys");
    seen.initialize().expect("available").baseline
}

proptest! {
    /// NFR-02 of FEAT-0001: rendered context does not depend on the order of answers or of registration.
    #[test]
    fn the_same_bytes_whatever_the_timing(
        contributions in prop::collection::btree_map("[a-z]{1,3}", 0..3usize, 1..12),
        timing in prop::collection::vec(0..9u8, 12),
        order in prop::collection::vec(any::<u16>(), 12),
    ) {
        let build = |timing: &[u8], order: &[u16]| {
            let registry = Registry::new();
            let mut numbered: Vec<_> = contributions.iter().enumerate().collect();
            numbered.sort_by_key(|(index, _)| order[*index]);
            let registrations: Vec<_> = numbered
                .into_iter()
                .map(|(index, (name, sources))| {
                    let words = (0..=*sources).map(|n| {
                        (key(&format!("{name}/{n}")), Loaded::Value(Word(format!("{name}{n}"))))
                    });
                    let words = words.collect();
                    let producer = Arc::new(Slow { words, polls: timing[index] });
                    registry.register(key(&format!("test/{name}")), producer).expect("not taken")
                })
                .collect();
            let seen = run(registry.observe(&())).expect("distinct keys");
            let first = seen.initialize().expect("available");
            let empty = context::ContextSnapshot::default();
            drop(registrations);
            (first.baseline, first.snapshot.text(), format!("{:?}", seen.reconcile(&empty)))
        };
        let calm = build(&[0; 12], &[0; 12]);
        prop_assert_eq!(&calm, &build(&timing, &order));
        let reversed: Vec<u8> = timing.iter().map(|polls| 9 - polls).collect();
        prop_assert_eq!(&calm, &build(&reversed, &order));
    }
}

#[test]
fn a_dropped_registration_takes_its_sources_away_at_the_next_look() {
    let registry = Registry::new();
    let _stays = registry.register(key("test/b"), slow("test/b", "b", 0)).expect("free");
    let leaves = registry.register(key("test/a"), slow("test/a", "a", 3)).expect("free");
    assert_eq!(baseline(&registry), "there is a\n\nthere is b");
    let told = run(registry.observe(&())).expect("distinct").initialize().expect("there").snapshot;
    drop(leaves);
    let Reconciled::Updated { rendered, .. } =
        run(registry.observe(&())).expect("distinct").reconcile(&told)
    else {
        panic!("one is gone")
    };
    assert_eq!(rendered, "a is gone");
    let _again = registry.register(key("test/a"), slow("test/a", "A", 0)).expect("free again");
    assert_eq!(baseline(&registry), "there is A\n\nthere is b");
}

#[test]
fn a_contribution_has_its_key_alone() {
    let registry = Registry::new();
    let _one = registry.register(key("test/a"), slow("test/a", "a", 0)).expect("free");
    let taken = registry.register(key("test/a"), slow("test/x", "x", 0)).expect_err("taken");
    assert_eq!(taken, RegisterError::Taken(key("test/a")));
    let _other = registry.register(key("test/b"), slow("test/a", "mine too", 0)).expect("free");
    let twice = run(registry.observe(&())).expect_err("two of one key");
    assert_eq!(twice, DuplicateKey(key("test/a")));
}

#[test]
fn contributions_are_bounded() {
    let registry = Registry::new();
    let all: Vec<_> = (0..Registry::<()>::MAX)
        .map(|n| registry.register(key(&format!("test/{n}")), slow("test/x", "x", 0)))
        .collect::<Result<_, _>>()
        .expect("room");
    let full = registry.register(key("test/more"), slow("test/x", "x", 0)).expect_err("full");
    assert_eq!((full, all.len()), (RegisterError::Full, 64));
}

/// A producer that waits until another one was asked.
struct Waits(Arc<AtomicBool>);

#[async_trait]
impl Producer<()> for Waits {
    async fn observe(&self, _at: &()) -> SystemContext {
        futures::future::poll_fn(|_| {
            if self.0.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        SystemContext::default()
    }
}

struct Asked(Arc<AtomicBool>);

#[async_trait]
impl Producer<()> for Asked {
    async fn observe(&self, _at: &()) -> SystemContext {
        self.0.store(true, Ordering::Relaxed);
        SystemContext::default()
    }
}

#[test]
fn producers_are_asked_at_the_same_time() {
    let registry = Registry::new();
    let asked = Arc::new(AtomicBool::new(false));
    let waits = Arc::new(Waits(Arc::clone(&asked)));
    let _first = registry.register(key("test/a"), waits).expect("free");
    let _second = registry.register(key("test/b"), Arc::new(Asked(asked))).expect("free");
    // In sequence, the first would wait forever, because `test/a` is asked before `test/b`.
    let mut observe = pin!(registry.observe(&()));
    let mut context = Context::from_waker(Waker::noop());
    let ended = (0..8).any(|_| observe.as_mut().poll(&mut context).is_ready());
    assert!(ended, "nobody asked the second producer while the first one waited");
}
