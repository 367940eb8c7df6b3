//! The way of spans from drains to the exporter: bounded, and never waited for.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use crate::{Span, TraceId};

/// The most spans that wait. Further ones are dropped.
const MOST: usize = 2_048;

static QUEUE: OnceLock<Queue> = OnceLock::new();

struct Queue {
    settings: Settings,
    spans: mpsc::Sender<Span>,
    dropped: AtomicU64,
}

/// What is traced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// The share of prompts whose work is traced, 0 to 1. The same everywhere, since the trace's id decides.
    pub share: f64,
    /// The texts that spans have.
    pub content: Content,
}

/// The kinds of texts that spans may have; by default none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Content {
    /// Prompts.
    pub prompts: bool,
    /// Arguments of tool calls.
    pub tool_arguments: bool,
    /// Results of tool calls, as the model sees them.
    pub tool_output: bool,
}

/// The spans that wait for the exporter.
#[derive(Debug)]
pub struct Spans(mpsc::Receiver<Span>);

impl Spans {
    /// Waits for spans, and returns at most `most`; none if nothing traces any more.
    pub async fn next(&mut self, most: usize) -> Vec<Span> {
        let mut batch = Vec::new();
        self.0.recv_many(&mut batch, most).await;
        batch
    }

    /// Returns at most `most` of those that wait, without waiting.
    pub fn waiting(&mut self, most: usize) -> Vec<Span> {
        std::iter::from_fn(|| self.0.try_recv().ok()).take(most).collect()
    }

    /// Returns the number of spans that were dropped since the last call.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        QUEUE.get().map_or(0, |queue| queue.dropped.swap(0, Ordering::Relaxed))
    }
}

/// Switches traces of this process on. Returns the exporter's end; `None` if they are on already.
#[must_use]
pub fn start(settings: Settings) -> Option<Spans> {
    let (spans, waiting) = mpsc::channel(MOST);
    let queue = Queue { settings, spans, dropped: AtomicU64::new(0) };
    QUEUE.set(queue).ok().map(|()| Spans(waiting))
}

/// Returns whether a trace is recorded. Nearly free where traces are off.
#[must_use]
pub fn is_on(trace: &TraceId) -> bool {
    QUEUE.get().is_some_and(|queue| is_sampled(trace, queue.settings.share))
}

/// Returns the texts that spans have.
#[must_use]
pub fn content() -> Content {
    QUEUE.get().map(|queue| queue.settings.content).unwrap_or_default()
}

/// Hands a span to the exporter. Never waits.
pub fn record(span: Span) {
    let Some(queue) = QUEUE.get() else { return };
    if is_sampled(&span.trace, queue.settings.share) && queue.spans.try_send(span).is_err() {
        queue.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

fn is_sampled(trace: &TraceId, share: f64) -> bool {
    let TraceId([a, b, c, d, ..]) = *trace;
    f64::from(u32::from_be_bytes([a, b, c, d])) < share * (f64::from(u32::MAX) + 1.)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, SpanId};

    #[test]
    fn a_share_of_traces_is_chosen_by_their_ids() {
        let trace = |first| TraceId([first; 16]);
        assert!(is_sampled(&trace(255), 1.) && is_sampled(&trace(0), 0.1));
        assert!(!is_sampled(&trace(0), 0.) && !is_sampled(&trace(200), 0.5));
    }

    // Attack 11 of production: the collector is down, or as slow as tar.
    #[test]
    fn spans_that_nobody_takes_are_dropped_and_counted() {
        let settings = Settings { share: 1., content: Content::default() };
        let mut spans = start(settings).expect("the only test that traces");
        for number in 0..MOST + 100 {
            record(Span {
                trace: TraceId([1; 16]),
                id: SpanId(u64::try_from(number).unwrap().to_be_bytes()),
                parent: None,
                links: Vec::new(),
                name: "chat".into(),
                kind: Kind::Internal,
                time: (0, 1),
                attributes: Vec::new(),
                error: None,
            });
        }
        assert_eq!((spans.dropped(), spans.dropped()), (100, 0));
        let kept = spans.waiting(usize::MAX);
        assert_eq!(kept.len(), MOST);
        assert_eq!(kept.first().map(|span| span.id), Some(SpanId([0; 8])), "the oldest are kept");
    }
}
