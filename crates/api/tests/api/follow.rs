use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use domain::TextCheckpointed;
use serde_json::json;
use signals::{Dropping, InProcess};

use crate::drain::{at, begin};
use crate::native::session;
use crate::world::{Sse, SseReader, World, ok, request, send};

async fn follow(
    world: &World,
    gateway: &axum::Router,
    session: &str,
    last_event_id: Option<i64>,
) -> SseReader {
    let path = format!("/platform/session/{session}/log?follow=true&after=0");
    let mut request = request("GET", &path, &world.key, None);
    if let Some(id) = last_event_id {
        request.headers_mut().insert("last-event-id", id.into());
    }
    SseReader::new(send(gateway, request).await)
}

fn durable(frames: &[Sse]) -> Vec<(i64, String)> {
    frames.iter().filter_map(|sse| Some((sse.id?, sse.event.clone()))).collect()
}

fn text(frames: &[Sse]) -> String {
    let mut text = String::new();
    for delta in frames.iter().filter(|sse| sse.event == "delta") {
        let offset =
            usize::try_from(delta.data["offset"].as_u64().expect("an offset")).expect("small");
        assert_eq!(offset, text.len(), "a gap or a repeat before {delta:?}");
        text.push_str(delta.data["text"].as_str().expect("text"));
    }
    text
}

async fn prompt(world: &World, gateway: &axum::Router, session: &str, text: &str) {
    let path = format!("/platform/session/{session}/message");
    ok(gateway, "POST", &path, &world.key, Some(json!({ "text": text }))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_get_each_event_once_with_live_text_between() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, id) = session(&world, &gateway).await;
    let mut early = follow(&world, &gateway, &id, None).await;
    prompt(&world, &gateway, &id, "hello").await;
    let mut turn = begin(&world, &at(&world, &id).await?).await?;
    early.until(|sse| sse.event == "attempt.started").await;
    turn.say(&world, "one ");
    turn.say(&world, "two ");
    let mut frames = early.until(|sse| sse.event == "delta" && sse.data["offset"] == 4).await;
    assert_eq!(text(&frames), "one two ");
    // A late follower gets the text so far as one piece, after the log.
    let mut late = follow(&world, &gateway, &id, None).await;
    let mut joined = late.until(|sse| sse.event == "delta").await;
    assert_eq!(text(&joined), "one two ");
    turn.say(&world, "three");
    turn.finish(&world, "one two three", None).await?;
    joined.extend(late.until(|sse| sse.event == "drain.ended").await);
    assert_eq!(text(&joined), "one two three");
    frames.extend(early.until(|sse| sse.event == "drain.ended").await);
    assert_eq!(text(&frames), "one two three");
    let all = durable(&joined);
    let seqs: Vec<i64> = all.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(seqs, (1..=i64::try_from(all.len())?).collect::<Vec<_>>());
    let log = ok(&gateway, "GET", &format!("/platform/session/{id}/log"), &world.key, None).await;
    let data: Vec<_> =
        joined.iter().filter(|sse| sse.id.is_some()).map(|sse| sse.data.clone()).collect();
    assert_eq!(log.as_array(), Some(&data));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_goes_on_at_another_gateway_though_every_hint_is_lost() -> Result<()> {
    let world = World::new().await?;
    let lossy = || Arc::new(Dropping::wrap(Arc::new(InProcess::new()), 1.0));
    let (one, _) = world.gateway_on(lossy());
    let (two, _) = world.gateway_on(lossy());
    let (_, id) = session(&world, &one).await;
    let mut stream = follow(&world, &one, &id, None).await;
    prompt(&world, &one, &id, "hello").await;
    let turn = begin(&world, &at(&world, &id).await?).await?;
    let mut seen = durable(&stream.until(|sse| sse.event == "turn.started").await);
    drop(stream); // ended during a turn
    turn.finish(&world, "done", None).await?;
    prompt(&world, &two, &id, "again").await;
    let last = seen.last().map(|(seq, _)| *seq);
    let mut stream = follow(&world, &two, &id, last).await;
    seen.extend(durable(
        &stream.until(|sse| sse.data["data"]["parts"][0]["text"] == "again").await,
    ));
    let turn = begin(&world, &at(&world, &id).await?).await?;
    turn.finish(&world, "done again", None).await?;
    seen.extend(durable(&stream.until(|sse| sse.event == "drain.ended").await));
    let log = ok(&two, "GET", &format!("/platform/session/{id}/log"), &world.key, None).await;
    let log: Vec<(i64, String)> = log
        .as_array()
        .expect("a list")
        .iter()
        .map(|event| {
            (
                event["seq"].as_i64().expect("a number"),
                event["type"].as_str().expect("a kind").to_owned(),
            )
        })
        .collect();
    assert_eq!(seen, log);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_a_session_that_is_made_anew_is_told_that_it_is_gone() -> Result<()> {
    let world = World::new().await?;
    let (here, there) = (world.gateway(), world.gateway());
    let (project, id) = session(&world, &here).await;
    prompt(&world, &here, &id, "hello").await;
    let mut stream = follow(&world, &here, &id, None).await;
    stream.until(|sse| sse.event == "prompt.admitted").await;
    let path = format!("/project/{project}/session");
    ok(&there, "DELETE", &format!("{path}/{id}"), &world.key, None).await;
    ok(&there, "POST", &path, &world.key, Some(json!({ "id": id }))).await;
    stream.until(|sse| sse.event == "gone").await;
    Ok(())
}

// Finding store 4: followers mixed up two sessions with one id, or stayed silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_tell_a_session_from_an_earlier_one() -> Result<()> {
    let world = World::new().await?;
    let (here, there) = (world.gateway(), world.gateway());
    let (project, id) = session(&world, &here).await;
    prompt(&world, &here, &id, "hello").await;
    let mut stream = follow(&world, &here, &id, None).await;
    let frames = stream.until(|sse| sse.event == "prompt.admitted").await;
    let old = frames.iter().find_map(|sse| sse.incarnation.clone()).expect("an id");
    let path = format!("/project/{project}/session");
    ok(&there, "DELETE", &format!("{path}/{id}"), &world.key, None).await;
    ok(&there, "POST", &path, &world.key, Some(json!({ "id": id }))).await;
    // Its log is longer than the followed one.
    for text in ["one", "two", "three"] {
        prompt(&world, &there, &id, text).await;
    }
    let spliced = stream.until(|sse| sse.event == "gone").await;
    assert_eq!(durable(&spliced), [], "events of another session");
    // A new follower gets the new session from its first event.
    let mut again = follow(&world, &here, &id, None).await;
    let frames = again.until(|sse| sse.id == Some(4)).await;
    assert_eq!(durable(&frames).first(), Some(&(1, "session.created".to_owned())));
    let new = frames.iter().find_map(|sse| sse.incarnation.clone()).expect("an id");
    assert_ne!(new, old);
    // An id of the earlier session gets `gone`; an id of this one resumes.
    let path = format!("/platform/session/{id}/log?follow=true");
    let resumed = async |event_id: String| {
        let mut request = request("GET", &path, &world.key, None);
        request.headers_mut().insert("last-event-id", event_id.parse().expect("a header"));
        SseReader::new(send(&here, request).await)
    };
    let mut stale = resumed(format!("2.{old}")).await;
    assert_eq!(stale.next().await.expect("a frame").event, "gone");
    assert_eq!(stale.next().await, None);
    let mut good = resumed(format!("2.{new}")).await;
    assert_eq!(good.next().await.expect("a frame").id, Some(3));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_fills_the_gap_of_lost_deltas_and_the_holder_is_asked() -> Result<()> {
    use signals::{Hint, Received, Signals, Topic, WorkerHint};
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, id) = session(&world, &gateway).await;
    let mut stream = follow(&world, &gateway, &id, None).await;
    prompt(&world, &gateway, &id, "hello").await;
    let at = at(&world, &id).await?;
    let mut hints = world.signals.subscribe(Topic::Worker(world.placement.incarnation)).await;
    let mut turn = begin(&world, &at).await?;
    stream.until(|sse| sse.event == "attempt.started").await;
    turn.say(&world, "one ");
    let mut frames = stream.until(|sse| sse.event == "delta").await;
    let elsewhere = InProcess::new();
    turn.say_on(&elsewhere, "two "); // lost
    turn.say(&world, "three ");
    loop {
        let hint = tokio::time::timeout(Duration::from_secs(60), hints.next()).await?;
        if hint == Some(Received::Hint(Hint::Worker(WorkerHint::Resync { session: at.clone() }))) {
            break;
        }
    }
    let checkpoint = TextCheckpointed {
        turn: turn.turn.clone(),
        part: turn.part.clone(),
        offset: 0,
        text: "one two three ".into(),
    };
    turn.write(&world, checkpoint).await?;
    frames.extend(stream.until(|sse| sse.event == "text.checkpointed").await);
    assert_eq!(text(&frames), "one two three ");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_end_with_a_word_when_the_session_goes_or_the_gateway_stops() -> Result<()> {
    let world = World::new().await?;
    let (gateway, state) = world.gateway_on(world.signals.clone());
    let (project, id) = session(&world, &gateway).await;
    let mut stream = follow(&world, &gateway, &id, None).await;
    stream.until(|sse| sse.event == "session.created").await;
    let path = format!("/project/{project}/session/{id}");
    ok(&gateway, "DELETE", &path, &world.key, None).await;
    stream.until(|sse| sse.event == "gone").await;
    assert_eq!(stream.next().await, None);
    let (_, id) = session(&world, &gateway).await;
    let mut stream = follow(&world, &gateway, &id, None).await;
    stream.until(|sse| sse.event == "session.created").await;
    state.end_streams();
    stream.until(|sse| sse.event == "reconnect").await;
    assert_eq!(stream.next().await, None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_is_cut_with_a_resync_and_loses_nothing() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, id) = session(&world, &gateway).await;
    let mut slow = follow(&world, &gateway, &id, None).await;
    slow.until(|sse| sse.event == "session.created").await;
    prompt(&world, &gateway, &id, "hello").await;
    let mut turn = begin(&world, &at(&world, &id).await?).await?;
    let mut watcher = follow(&world, &gateway, &id, None).await;
    watcher.until(|sse| sse.event == "attempt.started").await;
    let word = "word ".repeat(200);
    for _ in 0..50 {
        for _ in 0..50 {
            turn.say(&world, &word);
        }
        let offset = turn.sent() - 1_000;
        watcher
            .until(|sse| sse.data["offset"] == offset || sse.data["offset"].as_u64() > Some(offset))
            .await;
    }
    turn.finish(&world, "done", None).await?;
    let frames = slow.until(|sse| sse.event == "resync").await;
    assert_eq!(slow.next().await, None);
    let after = frames.last().map(|sse| sse.data["after"].clone()).expect("a frame");
    let mut again = follow(&world, &gateway, &id, after.as_i64()).await;
    let rest = again.until(|sse| sse.event == "drain.ended").await;
    assert_eq!(rest[0].id, after.as_i64().map(|seq| seq + 1));
    Ok(())
}

// Finding core-3 C1: such a stream got live text and never an event, and nothing said why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_from_beyond_the_end_is_told_to_begin_again() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, id) = session(&world, &gateway).await;
    let path = format!("/platform/session/{id}/log?follow=true&after=40");
    let mut stream = SseReader::new(send(&gateway, request("GET", &path, &world.key, None)).await);
    let told = stream.next().await.expect("a frame");
    assert_eq!((told.event.as_str(), &told.data["after"]), ("resync", &json!(0)));
    assert_eq!(stream.next().await, None);
    Ok(())
}

// Finding core-3 C1: followers never got what replaced the events that the database had lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_of_a_log_that_went_back_begin_again() -> Result<()> {
    let world = World::new().await?;
    let (here, there) = (world.gateway(), world.gateway());
    let (_, id) = session(&world, &here).await;
    let mut stream = follow(&world, &here, &id, None).await;
    prompt(&world, &here, &id, "lost").await;
    let frames = stream.until(|sse| sse.event == "prompt.admitted").await;
    let lost = frames.last().and_then(|sse| sse.data["id"].as_str()).map(str::to_owned);
    // As in a standby that lacked the last commit; the log grows back at once.
    let back = "BEGIN; DELETE FROM session_input; DELETE FROM session_event WHERE seq > 1;
        UPDATE session_head SET next_seq = 2, pending = 0, wake_seq = 0; COMMIT";
    world.tamper(back).await?;
    for text in ["one", "two"] {
        prompt(&world, &there, &id, text).await;
    }
    let spliced = stream.until(|sse| sse.event == "resync").await;
    assert_eq!(durable(&spliced), [], "events of another log");
    assert_eq!(spliced.last().map(|sse| &sse.data["after"]), Some(&json!(0)));
    let mut again = follow(&world, &here, &id, None).await;
    let frames = again.until(|sse| sse.id == Some(3)).await;
    assert_eq!(frames.iter().filter(|sse| sse.id.is_some()).count(), 3);
    assert!(frames.iter().all(|sse| sse.data["id"].as_str() != lost.as_deref()));
    Ok(())
}
