//! Conversations at the limits of models that enforce them: every one goes on at its next prompt, whatever made it too
//! large.

use anyhow::{Context, Result, ensure};
use domain::DrainOutcome::{Completed, Failed};
use domain::{AttemptOutcome, Delivery, SessionEvent, SideOutcome, TurnOutcome};
use serde_json::{Value, json};
use session::ModelFacts;
use simulated_model::{ALL_MODELS, Script, TokenLimits};

use crate::compaction::{SUMMARY, ended, gist, last_gist, outcomes, overflows, started, turns};
use crate::tools::{call, calls, says, shell};
use crate::world::{Session, World};

/// A model that takes so many tokens and says so.
pub(crate) async fn known(tokens: u64) -> Result<(World, Session)> {
    let (mut world, session) = unknown(tokens).await?;
    world.model_is(ModelFacts { context_limit: Some(tokens), ..ModelFacts::default() });
    Ok((world, session))
}

/// A model that takes so many tokens and does not say so.
pub(crate) async fn unknown(tokens: u64) -> Result<(World, Session)> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.model().set_limits([(ALL_MODELS, TokenLimits::input(tokens))])?;
    Ok((world, session))
}

/// How many requests were refused.
async fn refused(world: &World, session: &Session) -> Result<usize> {
    let failed = |event: &SessionEvent| match event {
        SessionEvent::AttemptEnded(ended) => ended.outcome == AttemptOutcome::Failed,
        _ => false,
    };
    Ok(world.events(session).await?.iter().filter(|event| failed(&event.event)).count())
}

/// A prompt of so many tokens.
pub(crate) fn large(tokens: usize) -> String {
    format!("say 2 words {}", "and so on ".repeat(tokens * 4 / 10))
}

pub(crate) async fn answers(world: &World, session: &Session, prompt: &str) -> Result<()> {
    world.prompt(session, prompt).await?;
    let ended = world.settle(session).await?;
    ensure!(ended == [Completed], "{ended:?}: {:?}", world.events(session).await?.pop());
    Ok(())
}

// Finding scenarios F1, conformance FR-07 (3): a batch of large results could not be summarised, nor anything after it.
#[tokio::test]
async fn a_batch_of_large_results_does_not_wedge_a_session() -> Result<()> {
    let (world, session) = known(40_000).await?;
    let print = |sign: char| shell(&format!("head -c 50000 /dev/zero | tr '\\0' {sign}"));
    let batch = "rstuwxyz".chars().map(print).collect();
    world.script(Script { times: Some(1), ..calls("work", 0, batch) })?;
    answers(&world, &session, "work").await?;
    assert_eq!(refused(&world, &session).await?, 0, "no request is sent that cannot fit");
    // The prompt that is answered is there word for word, and the model is told to go on.
    assert_eq!(
        last_gist(&world)?,
        ["user: <conversation-checkpoint", "user: work", "user: <notice>Your work so far"]
    );
    let summary = started(&world, &session).await?.pop().context("a compaction")?;
    assert!(summary.scope.cut.is_some() && !summary.scope.kept.is_empty(), "{summary:?}");
    answers(&world, &session, "say 3 words").await?;
    world.check().await
}

// Finding scenarios F1: a call whose input alone is larger than the context.
#[tokio::test]
async fn a_malformed_call_of_any_size_does_not_wedge_a_session() -> Result<()> {
    let (world, session) = known(40_000).await?;
    let input = json!({ "command": "x".repeat(200_000) });
    world.script(Script {
        times: Some(1),
        malformed_arguments: true,
        ..calls("work", 0, vec![call("shell", input)])
    })?;
    answers(&world, &session, "work").await?;
    answers(&world, &session, "say 3 words").await?;
    assert_eq!(refused(&world, &session).await?, 0);
    world.check().await
}

// Finding scenarios F1: the fallback for a limit that nobody knows never worked against a real one.
#[tokio::test]
async fn a_refused_conversation_heals_though_its_limit_is_unknown() -> Result<()> {
    let (world, session) = unknown(30_000).await?;
    for _ in 0..8 {
        answers(&world, &session, &large(6_000)).await?;
    }
    let overflowed = |outcome: &&TurnOutcome| **outcome == TurnOutcome::Overflowed;
    let all = turns(&world, &session).await?;
    assert!(all.iter().filter(overflowed).count() >= 1, "{all:?}");
    // Each summary's request was smaller than what was refused.
    for summary in started(&world, &session).await? {
        if let Some(refused) = summary.scope.refused {
            assert!(summary.scope.tokens <= refused / 2 + 100, "{:?}", summary.scope);
        }
    }
    world.check().await
}

// Finding scenarios F1: neither automatic nor requested compactions healed what was over the limit.
#[tokio::test]
async fn a_requested_compaction_heals_an_over_full_session() -> Result<()> {
    let world = World::with(|settings| settings.rules.compaction.auto = false).await?;
    let session = world.session().await?;
    for _ in 0..5 {
        answers(&world, &session, &large(6_000)).await?;
    }
    world.model().set_limits([(ALL_MODELS, TokenLimits::input(20_000))])?;
    world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    world.compact(&session, Delivery::Steer).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(outcomes(&world, &session).await?.pop(), Some(SideOutcome::Completed));
    answers(&world, &session, "say 4 words").await?;
    world.check().await
}

// Finding scenarios F1: a switch to a smaller model left the conversation too large for it.
#[tokio::test]
async fn a_smaller_model_gets_the_conversation_in_pieces() -> Result<()> {
    let (mut world, session) = known(200_000).await?;
    for _ in 0..8 {
        answers(&world, &session, &large(9_000)).await?;
    }
    world.model().set_limits([(ALL_MODELS, TokenLimits::context(32_000))])?;
    world.model_is(ModelFacts { context_limit: Some(32_000), ..ModelFacts::default() });
    answers(&world, &session, "say 3 words").await?;
    let pieces = started(&world, &session).await?;
    assert!(pieces.len() > 1 && pieces[0].scope.is_piece, "{pieces:?}");
    assert_eq!(refused(&world, &session).await?, 0);
    assert_eq!(world.answer(&session).await?, "w0 w1 w2");
    world.check().await
}

// Finding scenarios F3: usage of 0, null or a total alone was believed as 0.
#[tokio::test]
async fn usage_that_cannot_be_true_does_not_hide_the_limit() -> Result<()> {
    let none = json!({ "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 });
    for usage in [none, Value::Null, json!({ "total_tokens": 12_345 })] {
        let (world, session) = known(40_000).await?;
        world.script(Script { usage: Some(usage), ..Script::default() })?;
        for _ in 0..6 {
            answers(&world, &session, &large(6_000)).await?;
        }
        assert_eq!(refused(&world, &session).await?, 0);
        assert!(!started(&world, &session).await?.is_empty(), "it was compacted in time");
        world.check().await?;
    }
    Ok(())
}

// Finding core-3 H5: one odd count ended the session for ever, at four requests a prompt.
#[tokio::test]
async fn a_count_that_no_answer_has_is_told_and_not_believed() -> Result<()> {
    let (world, session) = known(200_000).await?;
    let odd =
        |count: u64| json!({ "prompt_tokens": count, "completion_tokens": 9, "total_tokens": 9 });
    let counts = [i64::MAX.unsigned_abs(), u64::MAX, 1 << 53, 10_000_001];
    for count in counts {
        let script = Script { usage: Some(odd(count)), times: Some(1), ..Script::default() };
        world.script(script)?;
        answers(&world, &session, "say 3 words").await?;
    }
    answers(&world, &session, "say 3 words").await?;
    assert_eq!(world.requests()?.len(), counts.len() + 1, "each prompt is one request");
    let attempts: Vec<_> = world
        .events(&session)
        .await?
        .into_iter()
        .filter_map(|event| match event.event {
            SessionEvent::AttemptEnded(ended) => Some((ended.usage.is_some(), ended.error)),
            _ => None,
        })
        .collect();
    for (is_counted, error) in &attempts[..counts.len()] {
        let said = error.as_ref().is_some_and(|error| error.message.contains("cannot be true"));
        assert!(!is_counted && said, "{error:?}");
    }
    assert!(matches!(attempts.last(), Some((true, None))), "{attempts:?}");
    let row = world.store().session(session.at.org, session.at.session.clone()).await?;
    assert!((1..100_000).contains(&row.usage.input), "{:?}", row.usage);
    world.check().await
}

// Finding scenarios F16: a first prompt above the context made all later ones fail.
#[tokio::test]
async fn a_first_prompt_above_the_context_fails_alone() -> Result<()> {
    for (world, session) in [known(40_000).await?, unknown(40_000).await?] {
        world.prompt(&session, &large(60_000)).await?;
        assert_eq!(world.settle(&session).await?, [Failed]);
        assert!(started(&world, &session).await?.is_empty(), "nothing could be summarised");
        answers(&world, &session, "say 3 words").await?;
        assert_eq!(world.answer(&session).await?, "w0 w1 w2");
        answers(&world, &session, "say 4 words").await?;
        world.check().await?;
    }
    Ok(())
}

// Finding scenarios F1: after a summary that was too long nothing fitted any more.
#[tokio::test]
async fn a_summary_that_is_too_long_is_cut() -> Result<()> {
    let (world, session) = known(40_000).await?;
    let long = format!("## Objective\n{}", "and so on ".repeat(30_000));
    world.script(Script { times: Some(1), ..says(SUMMARY, 0, &long) })?;
    for _ in 0..4 {
        answers(&world, &session, &large(6_000)).await?;
    }
    let first = ended(&world, &session).await?.into_iter().find_map(|ended| ended.checkpoint);
    let first = first.context("a checkpoint")?;
    assert!(first.len() < 40_000 && first.contains("the rest of the summary"), "{}", first.len());
    assert_eq!(refused(&world, &session).await?, 0);
    world.check().await
}

// Finding scenarios F1: a summary that was refused was asked for with the same request again.
#[tokio::test]
async fn each_request_for_a_summary_is_smaller_than_the_last() -> Result<()> {
    for (times, last) in [(2, SideOutcome::Completed), (100, SideOutcome::Failed)] {
        let world = World::new().await?;
        let session = world.session().await?;
        for _ in 0..4 {
            answers(&world, &session, &large(6_000)).await?;
        }
        world.script(overflows(SUMMARY, times))?;
        world.compact(&session, Delivery::Steer).await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
        let tried = started(&world, &session).await?;
        let first: Vec<_> =
            tried.iter().map(|one| (one.scope.refusals, one.scope.tokens)).collect();
        let bounded = first.iter().filter(|(refusals, _)| *refusals == 0).count();
        let asked = first.len();
        assert!(bounded >= 1 && asked <= 16, "{first:?}");
        for pair in first.windows(2).filter(|pair| pair[1].0 > 0) {
            assert!(pair[1].1 <= pair[0].1 / 2 + 100, "{first:?}");
        }
        if last == SideOutcome::Failed {
            assert_eq!(first.len(), 5, "one, and four that are smaller: {first:?}");
        }
        assert_eq!(outcomes(&world, &session).await?.pop(), Some(last));
        answers(&world, &session, "say 3 words").await?;
        assert_eq!(
            gist(&world.requests()?.pop().context("a request")?).pop().as_deref(),
            Some("user: say 3 words")
        );
        world.check().await?;
    }
    Ok(())
}

// Finding scenarios F2: the limit of a model's input did not count.
#[tokio::test]
async fn a_limit_of_the_input_is_kept_to() -> Result<()> {
    let (mut world, session) = unknown(40_000).await?;
    let (context_limit, input_limit) = (Some(400_000), Some(40_000));
    world.model_is(ModelFacts { context_limit, input_limit, ..ModelFacts::default() });
    for _ in 0..6 {
        answers(&world, &session, &large(8_000)).await?;
    }
    assert_eq!(refused(&world, &session).await?, 0);
    assert!(!started(&world, &session).await?.is_empty());
    world.check().await
}

/// A refusal in words that nobody knows.
fn odd_refusal(matches: &str, status: u16, times: u32) -> Script {
    let body = json!({ "error": { "code": "E42", "message": "zu viel auf einmal" } });
    Script {
        status: Some(status),
        body: Some(body),
        times: Some(times),
        matches: matches.into(),
        ..Script::default()
    }
}

// Finding reports 6: refused as too large in words that nobody knew, a session failed for ever.
#[tokio::test]
async fn refusals_in_unknown_words_are_compacted_once() -> Result<()> {
    for status in [400, 413, 422] {
        let world = World::new().await?;
        let session = world.session().await?;
        for _ in 0..3 {
            answers(&world, &session, &large(4_000)).await?;
        }
        // The first summary is refused as well.
        world.script(odd_refusal("say 3 words", status, 1))?;
        world.script(odd_refusal(SUMMARY, status, 1))?;
        answers(&world, &session, "say 3 words").await?;
        assert_eq!(world.answer(&session).await?, "w0 w1 w2");
        assert_eq!(outcomes(&world, &session).await?.pop(), Some(SideOutcome::Completed));
        world.check().await?;
    }
    Ok(())
}

#[tokio::test]
async fn refusals_that_are_not_about_size_end_the_turn() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    for _ in 0..3 {
        answers(&world, &session, &large(4_000)).await?;
    }
    world.script(odd_refusal("say 3 words", 400, 9))?;
    world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    assert_eq!(refused(&world, &session).await?, 2, "after one compaction");
    world.script(odd_refusal("say 4 words", 404, 9))?;
    world.prompt(&session, "say 4 words").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    assert_eq!(refused(&world, &session).await?, 3, "at once");
    answers(&world, &session, "say 5 words").await?;
    world.check().await
}

// Finding reports 6: a compaction by hand sent the same history, and did not help.
#[tokio::test]
async fn a_compaction_by_hand_takes_less_after_a_refusal() -> Result<()> {
    let world = World::with(|settings| settings.rules.compaction.auto = false).await?;
    let session = world.session().await?;
    for _ in 0..4 {
        answers(&world, &session, &large(6_000)).await?;
    }
    world.script(odd_refusal(SUMMARY, 400, 1))?;
    world.compact(&session, Delivery::Steer).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let tried = started(&world, &session).await?;
    assert!(
        tried.len() >= 2 && tried[1].scope.tokens <= tried[0].scope.tokens / 2 + 100,
        "{tried:?}"
    );
    assert_eq!(outcomes(&world, &session).await?.pop(), Some(SideOutcome::Completed));
    world.check().await
}
