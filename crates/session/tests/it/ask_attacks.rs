//! Attacks on calls that wait for an answer, by their numbers in the design of asks; and a death at every commit around one.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use domain::DrainOutcome::{Completed, Failed, Interrupted};
use domain::{Answer, Delivery, DrainOutcome, FencingToken, RuleAction, ToolOutcomeKind};
use history::History;
use serde_json::json;
use session::{DrainExit, drain, drain_control};
use simulated_model::{Script, ScriptedCall};
use store::Answering;
use tokio_util::sync::CancellationToken;

use crate::agents::made;
use crate::asks::{ASK_SHELL, answer, answered, pending, reject, sleeps};
use crate::permission::session;
use crate::recovery::life;
use crate::settings::of_organisation;
use crate::tools::{call, calls, says, shell};
use crate::world::{SOON, Session, World};

/// How a person, or nobody, ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Leave,
    Words,
    Refusal,
    Expiry,
    Interrupt,
}

const ENDINGS: [Ending; 5] =
    [Ending::Leave, Ending::Words, Ending::Refusal, Ending::Expiry, Ending::Interrupt];

impl Ending {
    fn answer(self) -> Option<Answer> {
        match self {
            Self::Leave => Some(Answer::Once),
            Self::Words => Some(reject("do without it")),
            Self::Refusal => Some(reject("")),
            Self::Expiry => Some(Answer::Expired),
            Self::Interrupt => None,
        }
    }

    fn outcome(self) -> DrainOutcome {
        match self {
            Self::Leave | Self::Words => Completed,
            Self::Refusal | Self::Expiry | Self::Interrupt => Interrupted,
        }
    }
}

pub(crate) async fn started(world: &World, session: &Session) -> Result<usize> {
    Ok(world.kinds(session).await?.iter().filter(|kind| **kind == "tool.started").count())
}

/// One call of a class, from its ask to its end, whose worker dies after so many commits before it sleeps, and after so many
/// since the answer (0: it does not die).
async fn lives_through(
    world: &World,
    asked: &ScriptedCall,
    ending: Ending,
    (before, after): (usize, usize),
) -> Result<()> {
    let rules = [
        ("bash", "*", RuleAction::Ask),
        ("read", "*", RuleAction::Ask),
        ("edit", "*", RuleAction::Ask),
    ];
    let session = session(world, &rules).await?;
    session.file("a.txt", "one\n")?;
    world.prompt(&session, &asked.name).await?;
    let slept =
        if before == 0 { None } else { life(world, &session, before, Duration::ZERO).await? };
    if before > 0 {
        world.take_over(&session).await?;
    }
    if slept.is_none() {
        match world.drain(&session).await? {
            DrainExit::Waiting => {}
            // It died after its last write.
            DrainExit::Idle if before > 0 => {}
            other => bail!("it does not sleep: {other:?}"),
        }
    }
    let asks = pending(world, &session).await?;
    let [ask] = asks.as_slice() else { bail!("it asks {asks:?}") };
    ensure!(started(world, &session).await? == 0, "it began without leave");
    match ending.answer() {
        Some(answer) => answered(world, ask, answer).await?,
        None => {
            let _applied = world.interrupt(&session).await?;
        }
    }
    let mut ended = Vec::new();
    if after > 0 {
        match life(world, &session, after, Duration::ZERO).await? {
            Some(DrainExit::Ended(outcome)) => ended.push(outcome),
            Some(other) => bail!("its first life ended: {other:?}"),
            None => {}
        }
        world.take_over(&session).await?;
    }
    ended.extend(world.settle(&session).await?);
    // A life that ended by its very last write told nobody how.
    let is_untold = ended.is_empty() && after > 0;
    ensure!(is_untold || ended == [ending.outcome()], "{ended:?}");

    let bodies = session.content("bodies").lines().count();
    let starts = started(world, &session).await?;
    let made = made(world, &session).await?;
    let [(.., outcome, _)] = made.as_slice() else { bail!("one result: {made:?}") };
    if ending != Ending::Leave {
        ensure!(
            starts == 0 && bodies == 0,
            "it ran without leave: {starts} starts, {bodies} bodies"
        );
        let settled = [ToolOutcomeKind::Failed, ToolOutcomeKind::Interrupted];
        ensure!(settled.contains(outcome), "{outcome:?}");
        return Ok(());
    }
    match asked.name.as_str() {
        // Attack 13: leave is for one body, and a takeover does not run it again.
        "shell" => {
            ensure!(starts == 1 && bodies <= 1, "{starts} starts, {bodies} bodies");
            let finished = *outcome == ToolOutcomeKind::Completed && bodies == 1;
            ensure!(finished || (after > 0 && *outcome == ToolOutcomeKind::Unknown), "{outcome:?}");
        }
        "write" => {
            let written = session.content("b.txt") == "b\n";
            ensure!(written && *outcome == ToolOutcomeKind::Completed, "{outcome:?}");
        }
        _ => ensure!(*outcome == ToolOutcomeKind::Completed, "{outcome:?}"),
    }
    Ok(())
}

async fn dies_at_every_commit(asked: ScriptedCall) -> Result<()> {
    let world = World::new().await?;
    world.script(calls(&asked.name, 0, vec![asked.clone()]))?;
    world.script(says(&asked.name, 1, "done"))?;
    for ending in ENDINGS {
        for deaths in [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (0, 2), (0, 3)] {
            let lived = lives_through(&world, &asked, ending, deaths).await;
            lived.with_context(|| format!("{}, {ending:?}, deaths at {deaths:?}", asked.name))?;
        }
    }
    world.check().await
}

// Attacks 1 and 2: the answer comes in the moment in which the session falls asleep, before or after. No wake is lost.
#[tokio::test]
async fn an_answer_while_it_falls_asleep_is_not_lost() -> Result<()> {
    let world = World::new().await?;
    for number in 0..12 {
        let session = session(&world, &ASK_SHELL).await?;
        world.script(calls("job", 0, vec![shell("echo x >> bodies")]))?;
        world.script(says("job", 1, "done"))?;
        world.prompt(&session, "job").await?;
        let person = async {
            while pending(&world, &session).await?.is_empty() {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(Duration::from_micros(250 * number)).await;
            let asks = pending(&world, &session).await?;
            answered(&world, &asks[0], Answer::Once).await
        };
        let (exit, done) = tokio::join!(world.drain(&session), person);
        done?;
        if !matches!(exit?, DrainExit::Ended(Completed)) {
            assert_eq!(world.settle(&session).await?, [Completed], "round {number}");
        }
        assert_eq!(session.content("bodies"), "x\n", "round {number}");
    }
    world.check().await
}

// Attacks 10 to 13, for each class of tool.
#[tokio::test]
async fn an_unsafe_call_that_is_asked_about_survives_deaths() -> Result<()> {
    dies_at_every_commit(shell("echo x >> bodies")).await
}

#[tokio::test]
async fn a_probed_call_that_is_asked_about_survives_deaths() -> Result<()> {
    dies_at_every_commit(call("write", json!({"path": "b.txt", "content": "b\n"}))).await
}

#[tokio::test]
async fn a_pure_call_that_is_asked_about_survives_deaths() -> Result<()> {
    dies_at_every_commit(call("read", json!({"path": "a.txt"}))).await
}

/// Makes a session that sleeps over one command.
pub(crate) async fn sleeper(world: &World) -> Result<(Session, store::AskRow)> {
    let session = session(world, &ASK_SHELL).await?;
    world.script(calls("job", 0, vec![shell("echo x >> bodies")]))?;
    world.script(says("job", 1, "done"))?;
    world.prompt(&session, "job").await?;
    let mut asks = sleeps(world, &session).await?;
    let ask = asks.pop().context("an ask")?;
    Ok((session, ask))
}

// Attacks 5 and 43: the answer to an answer was lost, and it is sent again an hour later.
#[tokio::test]
async fn an_answer_that_is_sent_again_much_later_is_the_same() -> Result<()> {
    let world = World::new().await?;
    let (session, ask) = sleeper(&world).await?;
    answered(&world, &ask, Answer::Once).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.clock.advance(Duration::from_hours(1));
    let events = world.events(&session).await?.len();
    answered(&world, &ask, Answer::Once).await?;
    assert_eq!(world.events(&session).await?.len(), events, "no event");
    assert!(matches!(world.drain(&session).await?, DrainExit::Idle), "nobody is woken");
    assert_eq!(session.content("bodies"), "x\n");
    world.check().await
}

// Attack 6: an interrupt comes after leave, before the body has begun.
#[tokio::test]
async fn an_interrupt_after_leave_comes_first() -> Result<()> {
    let world = World::new().await?;
    let (session, ask) = sleeper(&world).await?;
    answered(&world, &ask, Answer::Once).await?;
    world.interrupt(&session).await?;
    assert_eq!(world.settle(&session).await?, [Interrupted]);
    assert_eq!((session.content("bodies").as_str(), started(&world, &session).await?), ("", 0));
    world.check().await
}

// Attacks 4 and 9: leave, a refusal and the expiry at once.
#[tokio::test]
async fn of_answers_at_once_the_first_commit_stands() -> Result<()> {
    let world = World::new().await?;
    for _ in 0..6 {
        let (session, ask) = sleeper(&world).await?;
        let (once, no, expiry) = tokio::join!(
            answer(&world, &ask, Answer::Once),
            answer(&world, &ask, reject("")),
            answer(&world, &ask, Answer::Expired),
        );
        let all = [once?, no?, expiry?];
        let stands = |done: &&Answering| matches!(done, Answering::Answered { .. });
        assert_eq!(all.iter().filter(stands).count(), 1, "{all:?}");
        let had_leave = stands(&&all[0]);
        let expected = if had_leave { Completed } else { Interrupted };
        assert_eq!(world.settle(&session).await?, [expected]);
        assert_eq!(session.content("bodies").lines().count(), usize::from(had_leave));
        let answers = world.kinds(&session).await?;
        assert_eq!(answers.iter().filter(|kind| **kind == "tool.answered").count(), 1);
    }
    world.check().await
}

// Attack 14: a worker that lost the Location starts nothing, whatever was answered.
#[tokio::test]
async fn leave_is_no_use_to_a_worker_that_lost_the_location() -> Result<()> {
    let world = World::new().await?;
    let (session, ask) = sleeper(&world).await?;
    world.take_over(&session).await?;
    answered(&world, &ask, Answer::Once).await?;
    let old = FencingToken(1);
    let workspace = session.workspace(old);
    let (_handle, control) = drain_control(CancellationToken::new());
    let (worker, at) = (&world.worker, &session.at);
    let exit = Box::pin(drain(worker, at, old, &workspace, control, History::new())).await.0;
    assert!(matches!(exit, DrainExit::Superseded), "{exit:?}");
    assert_eq!((session.content("bodies").as_str(), started(&world, &session).await?), ("", 0));
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(session.content("bodies"), "x\n");
    world.check().await
}

// Attack 17: a permission is saved elsewhere after this session has looked at those that there are. Whoever saves it looks
// for asks too early.
#[tokio::test]
async fn a_permission_saved_in_the_moment_of_an_ask_covers_it() -> Result<()> {
    let world = World::new().await?;
    let (other, ask) = sleeper(&world).await?;
    let session = world.beside(&other).await?;
    let rules = r#"{"permission": {"bash": {"*": "ask", "./wait": "allow"}}}"#;
    of_organisation(&world, rules).await?;
    session.file("wait", "#!/bin/sh\nuntil [ -e go ]; do sleep 0.02; done\n")?;
    std::fs::set_permissions(session.root.join("wait"), Permissions::from_mode(0o755))?;
    world.script(calls("wait", 0, vec![shell("./wait"), shell("echo y >> bodies")]))?;
    world.script(says("wait", 1, "done"))?;
    world.prompt(&session, "wait").await?;
    let person = async {
        world.until_kind(&session, "tool.asked").await?;
        let patterns = vec!["echo *".to_owned()];
        answered(&world, &ask, Answer::Always { patterns }).await?;
        session.file("go", "\n")
    };
    let (exit, done) = tokio::join!(world.drain(&session), person);
    done?;
    assert!(matches!(exit?, DrainExit::Yielded), "it goes on at once");
    assert_eq!(pending(&world, &session).await?, []);
    assert_eq!(world.settle(&session).await?, [Completed]);
    ensure!(session.content("bodies").ends_with("y\n"));
    assert_eq!(world.settle(&other).await?, [Completed]);
    world.check().await
}

// Attack 22: somebody refuses without a word, and a prompt waits for after the work.
#[tokio::test]
async fn a_refusal_leaves_queued_prompts_awake() -> Result<()> {
    let world = World::new().await?;
    let (session, ask) = sleeper(&world).await?;
    world.script(says("later", 0, "later it is"))?;
    world.admit(&session, Delivery::Queue, "later").await?;
    answered(&world, &ask, reject("")).await?;
    assert_eq!(world.settle(&session).await?, [Interrupted, Completed]);
    assert_eq!(world.answer(&session).await?, "later it is");
    assert_eq!(session.content("bodies"), "");
    world.check().await
}

// Attack 23: the provider fails for good while a call of its reply waits for a person.
#[tokio::test]
async fn a_turn_that_fails_settles_what_was_asked() -> Result<()> {
    let world = World::with(|settings| {
        settings.rules.retry.max_retries = 0;
        settings.intent_delay = SOON;
    })
    .await?;
    let session = session(&world, &ASK_SHELL).await?;
    let chunks = 100_000; // just before the finish: the first call is whole
    world.script(Script {
        times: Some(1),
        gate: Some("cut".into()),
        gate_after_chunks: Some(chunks),
        cut_after_chunks: Some(chunks),
        ..calls("job", 0, vec![shell("echo x >> bodies"), shell("echo y >> bodies")])
    })?;
    world.prompt(&session, "job").await?;
    let person = async {
        world.until_kind(&session, "tool.asked").await?;
        let asks = pending(&world, &session).await?;
        world.model().open_gate("cut")?;
        Ok::<_, anyhow::Error>(asks)
    };
    let (outcomes, asks) = tokio::join!(world.settle(&session), person);
    assert_eq!(outcomes?, [Failed]);
    let asks = asks?;
    let [ask] = asks.as_slice() else { bail!("one call was whole: {asks:?}") };
    assert_eq!(answer(&world, ask, Answer::Once).await?, Answering::Gone);
    assert_eq!(pending(&world, &session).await?, []);
    let made = made(&world, &session).await?;
    let [(.., outcome, text)] = made.as_slice() else { bail!("{made:?}") };
    assert_eq!(*outcome, ToolOutcomeKind::Failed);
    ensure!(text.ends_with("It never ran."), "{text}");
    assert_eq!((session.content("bodies").as_str(), started(&world, &session).await?), ("", 0));
    world.check().await
}

// Attack 24: ten prompts come while it sleeps. They wake nobody, and all are taken at one boundary.
#[tokio::test]
async fn prompts_of_a_sleeper_wait_and_are_taken_together() -> Result<()> {
    let world = World::new().await?;
    let (session, ask) = sleeper(&world).await?;
    for number in 0..10 {
        world.prompt(&session, &format!("also {number}")).await?;
        assert!(matches!(world.drain(&session).await?, DrainExit::Idle), "after {number}");
    }
    world.script(says("also 9", 0, "all of them"))?;
    let before = world.model().counts().requests;
    answered(&world, &ask, Answer::Once).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(world.model().counts().requests, before + 1, "one request for all ten");
    assert_eq!(world.answer(&session).await?, "all of them");
    assert_eq!(session.content("bodies"), "x\n");
    world.check().await
}

// Attack 38: its worker dies again and again before a call that has leave can begin.
#[tokio::test]
async fn a_session_that_is_given_up_never_runs_what_had_leave() -> Result<()> {
    let world = World::with(|settings| settings.rules.max_recoveries = 1).await?;
    let (session, ask) = sleeper(&world).await?;
    answered(&world, &ask, Answer::Once).await?;
    let mut deaths = 0;
    // The claim is its first commit, and the start of the body its second.
    while life(&world, &session, 1, Duration::ZERO).await?.is_none() {
        world.take_over(&session).await?;
        deaths += 1;
        ensure!(deaths < 9, "nobody gives it up");
    }
    let outcomes = world.settle(&session).await?;
    ensure!(outcomes.is_empty() || outcomes == [Failed], "{outcomes:?}");
    let made = made(&world, &session).await?;
    let [(.., outcome, text)] = made.as_slice() else { bail!("{made:?}") };
    assert_eq!(*outcome, ToolOutcomeKind::Failed);
    ensure!(text.ends_with("It never ran."), "{text}");
    assert_eq!((session.content("bodies").as_str(), started(&world, &session).await?), ("", 0));
    world.check().await
}
