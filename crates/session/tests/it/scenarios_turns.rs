//! The original's scenarios of a turn that no other file has: its calls, its reasoning, and what ends it.

use anyhow::{Context, Result};
use domain::DrainOutcome::{Completed, Failed, Interrupted};
use domain::{SessionEvent, ToolOutcomeKind, TurnOutcome, TurnSettled};
use serde_json::{Value, json};
use signals::{Delta, DeltaKind, Hint, Received, SessionHint, Topic};
use simulated_model::Script;
use tokio::time::timeout;

use crate::scenarios::{error_code, turns_started};
use crate::tools::{call, calls, says, shell};
use crate::world::{ORG, PATIENCE, SOON, Session, World};

async fn turns(world: &World, session: &Session) -> Result<Vec<TurnSettled>> {
    let settled = |event| match event {
        SessionEvent::TurnSettled(settled) => Some(settled),
        _ => None,
    };
    Ok(world.events(session).await?.into_iter().filter_map(|event| settled(event.event)).collect())
}

async fn results(world: &World, session: &Session) -> Result<Vec<(ToolOutcomeKind, String)>> {
    let settled = |event| match event {
        SessionEvent::ToolSettled(settled) => Some((settled.outcome, settled.output)),
        _ => None,
    };
    Ok(world.events(session).await?.into_iter().filter_map(|event| settled(event.event)).collect())
}

fn outcomes<T: Copy>(of: &[(T, String)]) -> Vec<T> {
    of.iter().map(|(outcome, _)| *outcome).collect()
}

/// The first text that followers are told of a part of this kind.
async fn told(deltas: &mut signals::Subscription, wanted: DeltaKind) -> Result<String> {
    let first = async {
        loop {
            let hint = deltas.next().await.context("a hint")?;
            if let Received::Hint(Hint::Session(SessionHint::Delta(Delta { kind, text, .. }))) =
                hint
                && kind == wanted
            {
                return anyhow::Ok(text);
            }
        }
    };
    timeout(PATIENCE, first).await.context("nothing was told")?
}

#[tokio::test]
async fn the_events_of_a_turn_with_a_call_have_one_order() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(calls("look", 0, vec![call("glob", json!({"pattern": "*"}))]))?;
    world.script(says("look", 1, "seen"))?;
    world.prompt(&session, "look").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(
        world.kinds(&session).await?[3..],
        [
            "prompt.promoted",
            "turn.started",
            "attempt.started",
            "attempt.ended",
            "tool.called",
            "turn.replied",
            "tool.settled",
            "turn.settled",
            "turn.started",
            "attempt.started",
            "attempt.ended",
            "turn.replied",
            "turn.settled",
            "drain.ended",
        ]
    );
    world.check().await
}

#[tokio::test]
async fn five_calls_of_one_reply_run_at_once() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    // Each waits for all: one after the other, or four at a time, they would never end.
    let waits = |n: u32| {
        let all = "until [ -e 1 -a -e 2 -a -e 3 -a -e 4 -a -e 5 ]; do sleep 0.01; done";
        shell(&format!("echo > {n}; {all}; echo {n}"))
    };
    world.script(calls("together", 0, (1..=5).map(waits).collect()))?;
    world.script(says("together", 1, "done"))?;
    world.prompt(&session, "together").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(outcomes(&results(&world, &session).await?), [ToolOutcomeKind::Completed; 5]);
    world.check().await
}

#[tokio::test]
async fn reasoning_is_one_part_before_the_text_and_is_not_said_again() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(Script { reasoning: Some("let me think".into()), ..says("why", 0, "because") })?;
    world.prompt(&session, "why").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let (_, parts) = world.told(&session).await?.pop().context("a message")?;
    assert_eq!(parts, ["let me think", "because"]);
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let last = world.requests()?.pop().context("a request")?;
    assert_eq!(last[2]["content"], "because", "the protocol has no place for reasoning");
    world.check().await
}

#[tokio::test]
async fn an_interrupt_while_it_reasons_keeps_what_was_reasoned() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(Script {
        reasoning: Some("let me think about this".into()),
        hang_after_chunks: Some(3),
        ..says("why", 0, "because")
    })?;
    let topic = Topic::Session(ORG, session.at.session.clone());
    let mut deltas = world.worker.signals.subscribe(topic).await;
    world.prompt(&session, "why").await?;
    let meanwhile = async {
        told(&mut deltas, DeltaKind::Reasoning).await?;
        world.interrupt(&session).await
    };
    let (settled, asked) = tokio::join!(world.settle(&session), meanwhile);
    asked?;
    assert_eq!(settled?, [Interrupted]);
    let (_, parts) = world.told(&session).await?.pop().context("a message")?;
    assert!(parts.len() == 1 && parts[0].starts_with("let"), "{parts:?}");
    world.check().await
}

#[tokio::test]
async fn text_is_told_while_its_stream_pauses() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(Script { hang_after_chunks: Some(3), ..says("story", 0, "once upon a time") })?;
    let topic = Topic::Session(ORG, session.at.session.clone());
    let mut deltas = world.worker.signals.subscribe(topic).await;
    world.prompt(&session, "story").await?;
    let meanwhile = async {
        let text = told(&mut deltas, DeltaKind::Text).await?;
        assert!(text.starts_with("once"), "{text}");
        let kinds = world.kinds(&session).await?;
        assert!(!kinds.contains(&"text.checkpointed"), "{kinds:?}");
        world.interrupt(&session).await
    };
    let (settled, asked) = tokio::join!(world.settle(&session), meanwhile);
    asked?;
    assert_eq!(settled?, [Interrupted]);
    world.check().await
}

#[tokio::test]
async fn an_interrupt_of_a_stream_ends_the_calls_that_run_beside_it() -> Result<()> {
    let world = World::with(|settings| settings.intent_delay = SOON).await?;
    let session = world.session().await?;
    world.script(Script {
        gate: Some("never".into()),
        gate_after_chunks: Some(100_000),
        ..calls("work", 0, vec![shell("echo $$ > pid; sleep 60"), shell("echo never > never")])
    })?;
    world.prompt(&session, "work").await?;
    let meanwhile = async {
        session.until_file("pid").await?;
        world.interrupt(&session).await
    };
    let (settled, asked) = tokio::join!(world.settle(&session), meanwhile);
    asked?;
    assert_eq!(settled?, [Interrupted]);
    session.until_dead("pid").await?;
    assert_eq!(session.content("never"), "");
    assert_eq!(outcomes(&results(&world, &session).await?), [ToolOutcomeKind::Interrupted]);
    assert_eq!(turns(&world, &session).await?[0].outcome, TurnOutcome::Interrupted);
    world.check().await
}

#[tokio::test]
async fn a_call_is_settled_before_its_withheld_reply_fails() -> Result<()> {
    let world = World::with(|settings| settings.intent_delay = SOON).await?;
    let session = world.session().await?;
    // Held before its finish: the first call runs by then, the second is not known to be whole.
    world.script(Script {
        text: Some("I would".into()),
        finish_reason: Some("content_filter".into()),
        gate: Some("finish".into()),
        gate_after_chunks: Some(100_000),
        ..calls("policy", 0, vec![shell("echo 1 > ran"), shell("echo never > never")])
    })?;
    world.prompt(&session, "policy").await?;
    let meanwhile = async {
        session.until_file("ran").await?;
        anyhow::Ok(world.model().open_gate("finish")?)
    };
    let (settled, opened) = tokio::join!(world.settle(&session), meanwhile);
    opened?;
    assert_eq!(settled?, [Failed]);
    assert_eq!(error_code(&world, &session).await?, "provider.content-filter");
    let turns = turns(&world, &session).await?;
    assert_eq!((turns.len(), turns[0].outcome), (1, TurnOutcome::Failed));
    assert!(turns[0].usage.output > 0, "what was withheld was paid for: {turns:?}");
    assert_eq!(outcomes(&results(&world, &session).await?), [ToolOutcomeKind::Completed]);
    assert_eq!(session.content("never"), "");
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.check().await
}

#[tokio::test]
async fn steps_start_over_when_a_steer_joins_the_work() -> Result<()> {
    let world = World::with(|settings| settings.rules.max_steps = 2).await?;
    let session = world.session().await?;
    let look = || vec![call("glob", json!({"pattern": "*"}))];
    world.script(Script { gate: Some("door".into()), ..calls("look", 0, look()) })?;
    world.script(calls("and here", 0, look()))?;
    world.script(says("and here", 1, "done"))?;
    world.prompt(&session, "look").await?;
    let meanwhile = async {
        world.until_requests(1).await?;
        world.prompt(&session, "and here").await?;
        anyhow::Ok(world.model().open_gate("door")?)
    };
    let (settled, sent) = tokio::join!(world.settle(&session), meanwhile);
    sent?;
    assert_eq!(settled?, [Completed]);
    let steps: Vec<_> =
        turns_started(&world, &session).await?.iter().map(|turn| turn.step).collect();
    assert_eq!(steps, [1, 1, 2]);
    assert_eq!(outcomes(&results(&world, &session).await?), [ToolOutcomeKind::Completed; 2]);
    world.check().await
}

/// A call whose arguments are cut.
fn malformed(matches: &str, round: u32) -> Script {
    let read = vec![call("read", json!({"path": "a.txt"}))];
    Script { malformed_arguments: true, ..calls(matches, round, read) }
}

#[tokio::test]
async fn malformed_calls_are_answered_again_and_again() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(malformed("try", 0))?;
    world.script(malformed("try", 1))?;
    world.script(says("try", 2, "done"))?;
    world.prompt(&session, "try").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(world.answer(&session).await?, "done");
    let results = results(&world, &session).await?;
    assert_eq!(outcomes(&results), [ToolOutcomeKind::Failed; 2]);
    assert!(results.iter().all(|(_, told)| told.contains("not valid")), "{results:?}");
    world.check().await
}

#[tokio::test]
async fn malformed_calls_do_not_get_past_the_last_step() -> Result<()> {
    let world = World::with(|settings| settings.rules.max_steps = 3).await?;
    let session = world.session().await?;
    world.script(Script { round: None, ..malformed("try", 0) })?;
    world.prompt(&session, "try").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(turns(&world, &session).await?.len(), 3);
    assert_eq!(outcomes(&results(&world, &session).await?), [ToolOutcomeKind::Failed; 3]);
    world.check().await
}

#[tokio::test]
async fn a_refusal_after_a_malformed_call_is_the_turns_error() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(malformed("try", 0))?;
    world.script(Script {
        matches: "try".into(),
        round: Some(1),
        status: Some(401),
        ..Script::default()
    })?;
    world.prompt(&session, "try").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    assert_eq!(error_code(&world, &session).await?, "provider.authentication");
    let outcomes: Vec<_> =
        turns(&world, &session).await?.into_iter().map(|turn| turn.outcome).collect();
    assert_eq!(outcomes, [TurnOutcome::Completed, TurnOutcome::Failed]);
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.check().await
}

#[tokio::test]
async fn a_valid_call_runs_beside_a_malformed_one() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    session.file("a.txt", "one\n")?;
    let read = |arguments: Value| call("read", arguments);
    world.script(calls(
        "both",
        0,
        vec![read("{\"path\": \"a.t".into()), read(json!({"path": "a.txt"}))],
    ))?;
    world.script(says("both", 1, "done"))?;
    world.prompt(&session, "both").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let mut outcomes = outcomes(&results(&world, &session).await?);
    outcomes.sort_by_key(|outcome| format!("{outcome:?}"));
    assert_eq!(outcomes, [ToolOutcomeKind::Completed, ToolOutcomeKind::Failed]);
    world.check().await
}
