//! Answers without text and calls: the model is asked once more, and then somebody is told.

use anyhow::{Context, Result, ensure};
use domain::DrainOutcome::{Completed, Failed};
use domain::{ErrorCode, NoticeKind, SessionError, SessionEvent, TurnOutcome};
use simulated_model::Script;

use crate::compaction::turns;
use crate::tools::{calls, says, shell};
use crate::world::{Session, World};

/// An answer that says nothing, so many times.
fn says_nothing(matches: &str, times: u32, reasoning: Option<&str>) -> Script {
    Script {
        times: Some(times),
        reasoning: reasoning.map(str::to_owned),
        round: None,
        ..says(matches, 0, "")
    }
}

async fn notices(world: &World, session: &Session) -> Result<usize> {
    let is_one = |event: &SessionEvent| matches!(event, SessionEvent::NoticeRecorded(notice) if notice.kind == NoticeKind::Continuation);
    Ok(world.events(session).await?.iter().filter(|event| is_one(&event.event)).count())
}

async fn last_error(world: &World, session: &Session) -> Result<SessionError> {
    let last = world.events(session).await?.pop().context("an event")?.event;
    let SessionEvent::DrainEnded(ended) = last else { panic!("{last:?}") };
    ended.error.context("an error")
}

// A server that does not know a model's template hands its calls on as text, and the work stopped there.
#[tokio::test]
async fn a_call_that_is_written_as_text_is_asked_for_once() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let written = "I look.\n<tool_call>\n{\"name\": \"read\"}\n</tool_call>\n";
    world.script(Script { times: Some(1), round: None, ..says("hello", 0, written) })?;
    world.script(says("hello", 0, "Good morning."))?;
    world.prompt(&session, "hello").await?;
    ensure!(world.settle(&session).await? == [Completed]);
    assert_eq!(world.answer(&session).await?, "Good morning.");
    assert_eq!(notices(&world, &session).await?, 1);
    world.script(Script { times: Some(2), round: None, ..says("again", 0, written) })?;
    world.prompt(&session, "again").await?;
    ensure!(world.settle(&session).await? == [Completed]);
    assert_eq!(
        (notices(&world, &session).await?, world.answer(&session).await?.trim()),
        (2, written.trim())
    );
    world.check().await
}

// Finding reports 8: such an answer ended the session as completed, with an empty message and without a word.
#[tokio::test]
async fn an_answer_that_says_nothing_is_asked_for_once_more() -> Result<()> {
    for (reasoning, finish) in
        [(None, None), (Some("Hm."), None), (None, Some("length")), (None, Some("tool_calls"))]
    {
        let world = World::new().await?;
        let session = world.session().await?;
        let finish_reason = finish.map(str::to_owned);
        world.script(Script { finish_reason, ..says_nothing("hello", 1, reasoning) })?;
        world.script(says("hello", 0, "Good morning."))?;
        world.prompt(&session, "hello").await?;
        ensure!(world.settle(&session).await? == [Completed], "{reasoning:?} {finish:?}");
        assert_eq!(turns(&world, &session).await?, [TurnOutcome::Completed; 2]);
        assert_eq!(world.answer(&session).await?, "Good morning.");
        assert_eq!(notices(&world, &session).await?, 1);
        // The next prompt has its own second try.
        world.script(says_nothing("again", 1, reasoning))?;
        world.script(says("again", 0, "Good evening."))?;
        world.prompt(&session, "again").await?;
        ensure!(world.settle(&session).await? == [Completed]);
        assert_eq!(world.answer(&session).await?, "Good evening.");
        world.check().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_second_silence_is_told() -> Result<()> {
    for reasoning in [None, Some("Hm.")] {
        let world = World::new().await?;
        let session = world.session().await?;
        world.script(says_nothing("hello", 9, reasoning))?;
        world.prompt(&session, "hello").await?;
        ensure!(world.settle(&session).await? == [Failed]);
        let error = last_error(&world, &session).await?;
        assert_eq!(error.code, ErrorCode::ProviderInvalidOutput);
        assert!(error.message.starts_with("the model gave no answer"), "{error:?}");
        assert_eq!(turns(&world, &session).await?, [TurnOutcome::Completed, TurnOutcome::Failed]);
        assert_eq!(world.requests()?.len(), 2, "not more");
        world.prompt(&session, "say 2 words").await?;
        ensure!(world.settle(&session).await? == [Completed]);
        world.check().await?;
    }
    Ok(())
}

#[tokio::test]
async fn silence_after_work_is_asked_about_too() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    // The notice begins a new round.
    let work = calls("work", 0, vec![shell("echo x >> ran")]);
    world.script(Script { times: Some(1), ..work })?;
    world.script(Script { times: Some(1), ..says("work", 1, "") })?;
    world.script(Script { round: None, ..says("work", 0, "Done.") })?;
    world.prompt(&session, "work").await?;
    ensure!(world.settle(&session).await? == [Completed]);
    assert_eq!(world.answer(&session).await?, "Done.");
    assert_eq!(session.content("ran"), "x\n", "it ran once");
    world.check().await
}
