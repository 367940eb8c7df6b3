//! The spans that exporters will see: their names are stable, and each lies within its cause.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use domain::Delivery::Steer;
use domain::DrainOutcome::Completed;
use simulated_model::Script;
use tracing::span::{Attributes, Id};
use tracing::subscriber::set_default;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::world::World;

/// Notes each of our spans as its way from the root.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl<S: tracing::Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Recorder {
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(scope) = context.span_scope(id) else { return };
        let names: Vec<_> = scope
            .from_root()
            .map(|span| span.name())
            .filter(|name| name.starts_with("session."))
            .collect();
        let ours = context.metadata(id).is_some_and(|data| data.name().starts_with("session."));
        if ours {
            self.0.lock().unwrap().push(names.join(" > "));
        }
    }
}

impl Recorder {
    /// Takes what was seen so far.
    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[tokio::test]
async fn drains_turns_attempts_and_tools_are_spans() -> Result<()> {
    let recorder = Recorder::default();
    let _recording = set_default(Registry::default().with(recorder.clone()));
    let world = World::new().await?;
    let session = world.session().await?;
    session.file("a.txt", "one\n")?;
    let busy =
        Script { matches: "read".into(), times: Some(1), status: Some(503), ..Script::default() };
    world.script(busy)?;
    world.prompt(&session, "read a.txt").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(
        recorder.seen(),
        [
            "session.drain",
            "session.drain > session.turn",
            "session.drain > session.turn > session.attempt",
            "session.drain > session.turn > session.attempt",
            "session.drain > session.turn > session.tool",
            "session.drain > session.turn",
            "session.drain > session.turn > session.attempt",
            // The look that found nothing more to do.
            "session.drain",
        ]
    );
    world.check().await
}

#[tokio::test]
async fn titles_and_compactions_are_spans() -> Result<()> {
    let recorder = Recorder::default();
    let _recording = set_default(Registry::default().with(recorder.clone()));
    let world = World::new().await?;
    let session = world.session_titled("New session", false).await?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let turn = [
        "session.drain",
        "session.drain > session.title",
        "session.drain > session.turn",
        "session.drain > session.turn > session.attempt",
        "session.drain",
    ];
    assert_eq!(recorder.seen(), turn);
    world.compact(&session, Steer).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let compaction = [
        "session.drain",
        "session.drain > session.compaction",
        "session.drain > session.compaction > session.attempt",
        "session.drain",
    ];
    assert_eq!(recorder.seen(), compaction);
    world.check().await
}

#[tokio::test]
async fn captures_are_spans() -> Result<()> {
    let recorder = Recorder::default();
    let _recording = set_default(Registry::default().with(recorder.clone()));
    let world = World::new().await?;
    let session = world.session().await?;
    let (workspace, _) = world.hold(&session, &session.root);
    session.is_held(&workspace);
    world.prompt(&session, "create a.txt containing one").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(
        recorder.seen(),
        [
            "session.drain",
            "session.drain > session.turn",
            "session.drain > session.turn > session.attempt",
            // The capture before the first call that may change files.
            "session.drain > session.turn > session.attempt > session.snapshot",
            "session.drain > session.turn > session.tool",
            "session.drain > session.turn > session.snapshot",
            "session.drain > session.turn",
            "session.drain > session.turn > session.attempt",
            "session.drain",
        ]
    );
    world.check().await
}
