//! Followers of a session's log: any gateway, any number of broken streams, every signal lost.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use journeys::{Api, Follow, Frame, World, oracle, within};
use simulated_model::Script;

/// Live text by (part, byte offset), as a client keeps it.
#[derive(Default)]
struct Live(BTreeMap<String, Vec<u8>>);

impl Live {
    /// Adds a delta. A piece may come twice; a piece after a gap is an error.
    fn add(&mut self, delta: &Frame) -> Result<()> {
        let part = delta.data["part"].as_str().context("a part")?.to_owned();
        let text = delta.data["text"].as_str().context("a text")?.as_bytes();
        let offset = usize::try_from(delta.data["offset"].as_u64().context("an offset")?)?;
        let known = self.0.entry(part).or_default();
        ensure!(offset <= known.len(), "a gap: {} bytes are known, {delta:?}", known.len());
        known.truncate(offset);
        known.extend_from_slice(text);
        Ok(())
    }

    fn text(&self) -> String {
        let all: Vec<u8> = self.0.values().flatten().copied().collect();
        String::from_utf8_lossy(&all).into_owned()
    }
}

/// Reads until `done` holds, and returns the numbers of the durable events.
async fn read_until(
    follow: &mut Follow,
    live: &mut Live,
    mut done: impl FnMut(&Frame, &Live) -> bool,
) -> Result<Vec<i64>> {
    let mut seqs = Vec::new();
    while let Some(frame) = follow.next().await? {
        match frame.id {
            Some(seq) => seqs.push(seq),
            None if frame.event == "delta" => live.add(&frame)?,
            None => bail!("what is this: {frame:?}"),
        }
        if done(&frame, live) {
            return Ok(seqs);
        }
    }
    bail!("the stream ended; read {seqs:?}")
}

#[tokio::test]
async fn a_stream_cut_at_one_gateway_goes_on_at_another() -> Result<()> {
    let world = World::new().await?;
    let cluster = world.cluster(&[]).await?;
    let (one, two) = (cluster.gateway(0), cluster.gateway(1));
    let session = one.session(&world.workspace("streams")?).await?;
    world.model().script(Script {
        matches: "count".into(),
        words: Some(40),
        gate: Some("half".into()),
        gate_after_chunks: Some(21), // the first only names the role
        ..Script::default()
    })?;
    let mut first = one.follow(&session, 0).await?;
    one.admit(&session, "count").await?;
    let half: Vec<String> = (0..20).map(|word| format!("w{word}")).collect();
    let half = half.join(" ");
    // The model waits at its gate, so this arrives while the turn runs.
    let mut live = Live::default();
    let read = read_until(&mut first, &mut live, |_, live| live.text().trim_end() == half);
    let mut seqs = within("live text before the turn ends", 60, read).await?;
    ensure!(world.model().counts().pending == 1, "the turn still runs");
    drop(first);

    let after = *seqs.last().context("durable events came before the text")?;
    let mut second = two.follow(&session, after).await?;
    // A new client gets everything from the start.
    let mut fresh = Live::default();
    let read = read_until(&mut second, &mut fresh, |_, live| live.text().trim_end() == half);
    seqs.extend(within("the text so far, at the other gateway", 60, read).await?);
    world.model().open_gate("half")?;
    let read = read_until(&mut second, &mut fresh, |frame, _| frame.event == "drain.ended");
    seqs.extend(within("the end", 60, read).await?);
    let log = one.log(&session).await?;
    let whole: Vec<i64> = (1..).take(log.len()).collect();
    ensure!(seqs == whole, "no gap and no repeat: {seqs:?}");
    let words: Vec<String> = (0..40).map(|word| format!("w{word}")).collect();
    ensure!(fresh.text().trim_end() == words.join(" "), "{}", fresh.text());
    oracle(two, world.model()).await?;
    cluster.stop(&world).await
}

async fn follows_to_the_end(api: &Api, session: &str, drains: usize) -> Result<Vec<i64>> {
    let mut follow = api.follow(session, 0).await?;
    let mut left = drains;
    let mut live = Live::default();
    read_until(&mut follow, &mut live, |frame, _| {
        left -= usize::from(frame.event == "drain.ended");
        left == 0
    })
    .await
}

#[tokio::test]
async fn nothing_depends_on_a_signal() -> Result<()> {
    let world = World::new().await?;
    let cluster = world.cluster(&["--drop-signals", "1"]).await?;
    let mut sessions = Vec::new();
    for number in 0..4 {
        let place = world.workspace(&format!("quiet-{number}"))?;
        let session = cluster.gateway(number % 2).session(&place).await?;
        sessions.push((session, place));
    }
    let journeys = sessions.iter().enumerate().map(|(number, (session, place))| {
        let (admits, follows) = (cluster.gateway(number % 2), cluster.gateway((number + 1) % 2));
        async move {
            let prompt = async {
                for prompt in ["create a.txt containing x then read a.txt", "say 5 words"] {
                    let outcome = admits.prompt(session, prompt, 70).await?;
                    ensure!(outcome == "completed", "{outcome}");
                }
                Ok(())
            };
            let follow = within("a stream", 150, follows_to_the_end(follows, session, 2));
            let ((), seqs) = futures::try_join!(prompt, follow)?;
            let whole: Vec<i64> = (1..).take(seqs.len()).collect();
            ensure!(seqs == whole, "the durable stream is complete: {seqs:?}");
            ensure!(place.join("a.txt").exists());
            Ok(())
        }
    });
    try_join_all(journeys).await?;
    let verdict = oracle(cluster.gateway(0), world.model()).await?;
    ensure!((verdict.sessions, verdict.turns) == (4, 16), "{verdict:?}");
    cluster.stop(&world).await
}
