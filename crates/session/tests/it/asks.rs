//! Calls that wait for somebody's answer.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use domain::DrainOutcome::{Completed, Interrupted};
use domain::{Answer, Ask, AskId, Clock as _, RuleAction, SessionEvent, ToolOutcomeKind};
use serde_json::json;
use session::DrainExit;
use store::{Answering, AskRow};

use crate::agents::{made, prompt_as};
use crate::permission::session;
use crate::recovery::life;
use crate::settings::of_organisation;
use crate::tools::{call, calls, says, shell};
use crate::world::{ORG, Session, World};

pub(crate) const ASK_SHELL: [(&str, &str, RuleAction); 1] = [("bash", "*", RuleAction::Ask)];

/// Drains until the session sleeps. Returns what it waits for.
pub(crate) async fn sleeps(world: &World, session: &Session) -> Result<Vec<AskRow>> {
    match world.drain(session).await? {
        DrainExit::Waiting => pending(world, session).await,
        other => bail!("the drain ended otherwise: {other:?}"),
    }
}

pub(crate) async fn pending(world: &World, session: &Session) -> Result<Vec<AskRow>> {
    Ok(world.store().pending_asks(ORG, Some(session.at.session.clone())).await?)
}

pub(crate) async fn answer(world: &World, ask: &AskRow, answer: Answer) -> Result<Answering> {
    let (ask, now) = (ask.asked.ask.clone(), world.clock.now_ms());
    Ok(world.store().answer_ask(ORG, ask, answer, None, now).await?)
}

/// Answers, for the first time.
pub(crate) async fn answered(world: &World, ask: &AskRow, with: Answer) -> Result<()> {
    let done = answer(world, ask, with).await?;
    ensure!(matches!(done, Answering::Answered { .. }), "{done:?}");
    Ok(())
}

pub(crate) fn reject(words: &str) -> Answer {
    Answer::Reject { message: (!words.is_empty()).then(|| words.to_owned()) }
}

#[tokio::test]
async fn an_asked_call_runs_once_it_has_leave() -> Result<()> {
    let world = World::new().await?;
    let session = session(&world, &ASK_SHELL).await?;
    world.script(calls("job", 0, vec![shell("echo x >> a")]))?;
    world.script(says("job", 1, "done"))?;
    world.prompt(&session, "job").await?;
    let asks = sleeps(&world, &session).await?;
    let [ask] = asks.as_slice() else { bail!("{asks:?}") };
    let (action, resources) = ("shell".to_owned(), vec!["echo x".to_owned()]);
    let save = vec!["echo *".to_owned()];
    assert_eq!(ask.asked.about, Ask::Permission { action, resources, save });
    ensure!(!session.root.join("a").exists(), "nothing ran");
    // Nobody needs to drain it, and it counts as busy.
    assert!(matches!(world.drain(&session).await?, DrainExit::Idle));
    ensure!(world.store().session(ORG, session.at.session.clone()).await?.busy);
    world.prompt(&session, "and this").await?;
    assert!(matches!(world.drain(&session).await?, DrainExit::Idle), "a prompt waits too");

    answered(&world, ask, Answer::Once).await?;
    world.script(says("and this", 0, "that too"))?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(session.content("a"), "x\n", "one body");
    let again = answer(&world, ask, Answer::Once).await?;
    assert!(matches!(again, Answering::Answered { .. }), "the same answer again: {again:?}");
    assert_eq!(answer(&world, ask, reject("")).await?, Answering::Conflict);
    world.check().await
}

#[tokio::test]
async fn a_refusal_with_words_lets_the_model_go_on() -> Result<()> {
    let world = World::new().await?;
    let session = session(&world, &ASK_SHELL).await?;
    world.script(calls("job", 0, vec![shell("touch a"), shell("touch b")]))?;
    world.script(says("job", 1, "then not"))?;
    world.prompt(&session, "job").await?;
    let asks = sleeps(&world, &session).await?;
    assert_eq!(asks.len(), 2);
    answered(&world, &asks[0], reject("use make instead")).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let made = made(&world, &session).await?;
    let texts: Vec<_> = made.iter().map(|(_, _, _, text)| text.as_str()).collect();
    assert_eq!(texts[0], "The user rejected this call: use make instead");
    assert_eq!(texts[1], "The user rejected another call, so this one never ran.");
    assert!(made.iter().all(|(_, _, outcome, _)| *outcome == ToolOutcomeKind::Failed));
    assert_eq!(answer(&world, &asks[1], Answer::Once).await?, Answering::Gone);
    assert_eq!(world.answer(&session).await?, "then not");
    world.check().await
}

#[tokio::test]
async fn a_refusal_without_words_ends_the_work() -> Result<()> {
    let world = World::new().await?;
    let session = session(&world, &ASK_SHELL).await?;
    world.script(calls("job", 0, vec![shell("touch a")]))?;
    world.prompt(&session, "job").await?;
    let asks = sleeps(&world, &session).await?;
    answered(&world, &asks[0], reject("")).await?;
    assert_eq!(world.settle(&session).await?, [Interrupted]);
    assert_eq!(world.requests()?.len(), 1, "the model was not asked again");
    // A later prompt goes on from there.
    world.script(says("next", 0, "fine"))?;
    world.prompt(&session, "next").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.check().await
}

// Attack 22 of asks: somebody refuses without a word, and a prompt waits for the next boundary.
#[tokio::test]
async fn a_steer_goes_on_instead_of_a_refused_call() -> Result<()> {
    let world = World::new().await?;
    let session = session(&world, &ASK_SHELL).await?;
    world.script(calls("job", 0, vec![shell("touch a")]))?;
    world.prompt(&session, "job").await?;
    let asks = sleeps(&world, &session).await?;
    world.script(says("rather this", 0, "gladly"))?;
    world.prompt(&session, "rather this").await?;
    answered(&world, &asks[0], reject("")).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(world.answer(&session).await?, "gladly");
    world.check().await
}

#[tokio::test]
async fn what_is_saved_is_not_asked_again() -> Result<()> {
    let world = World::new().await?;
    let one = session(&world, &ASK_SHELL).await?;
    world.script(calls("job", 0, vec![shell("touch a"), shell("touch b")]))?;
    world.script(says("job", 1, "done"))?;
    world.prompt(&one, "job").await?;
    let asks = sleeps(&world, &one).await?;
    let patterns = vec!["touch *".to_owned()];
    answered(&world, &asks[0], Answer::Always { patterns }).await?;
    let covered = world.store().covered_asks(ORG).await?;
    assert_eq!(covered, [asks[1].asked.ask.clone()]);
    answered(&world, &asks[1], Answer::Granted).await?;
    assert_eq!(world.settle(&one).await?, [Completed]);
    ensure!(one.root.join("a").exists() && one.root.join("b").exists());

    world.script(calls("more", 0, vec![shell("touch c")]))?;
    world.script(says("more", 1, "done"))?;
    world.prompt(&one, "more").await?;
    assert_eq!(world.settle(&one).await?, [Completed], "nobody is asked");
    ensure!(one.root.join("c").exists());

    // Another project has not saved it, and what was saved can be taken back.
    let two = session(&world, &ASK_SHELL).await?;
    world.prompt(&two, "job").await?;
    assert_eq!(sleeps(&world, &two).await?.len(), 2);
    let kept = world.store().kept_permissions(ORG, None).await?;
    assert_eq!(kept.len(), 1);
    ensure!(world.store().forget_permission(ORG, kept[0].id.clone()).await?);
    world.script(calls("again", 0, vec![shell("touch d")]))?;
    world.prompt(&one, "again").await?;
    assert_eq!(sleeps(&world, &one).await?.len(), 1);
    for session in [&one, &two] {
        world.interrupt(session).await?;
        assert_eq!(world.settle(session).await?, [Interrupted]);
    }
    world.check().await
}

// Attacks 7 and 8 of asks: an interrupt of a session that sleeps, and an answer after it.
#[tokio::test]
async fn an_interrupt_wakes_a_sleeper_and_nothing_runs() -> Result<()> {
    let world = World::new().await?;
    let session = session(&world, &ASK_SHELL).await?;
    world.script(calls("job", 0, vec![shell("touch a")]))?;
    world.prompt(&session, "job").await?;
    let asks = sleeps(&world, &session).await?;
    let stopped = world.interrupt(&session).await?;
    ensure!(matches!(stopped, store::Interrupted::Applied { .. }), "{stopped:?}");
    assert_eq!(answer(&world, &asks[0], Answer::Once).await?, Answering::Gone);
    assert_eq!(world.settle(&session).await?, [Interrupted]);
    assert_eq!(made(&world, &session).await?[0].2, ToolOutcomeKind::Interrupted);
    ensure!(!session.root.join("a").exists());
    world.check().await
}

#[tokio::test]
async fn nobody_is_waited_for_for_ever() -> Result<()> {
    let world = World::with(|settings| {
        settings.rules.asks = Some(Duration::from_secs(60));
    })
    .await?;
    let session = session(&world, &ASK_SHELL).await?;
    world.script(calls("job", 0, vec![shell("touch a")]))?;
    world.prompt(&session, "job").await?;
    sleeps(&world, &session).await?;
    let due = |now| world.store().due_asks(now, 10);
    assert_eq!(due(world.clock.now_ms()).await?, []);
    world.clock.advance(Duration::from_secs(61));
    let due = due(world.clock.now_ms()).await?;
    let [(org, ask)] = due.as_slice() else { bail!("{due:?}") };
    let now = world.clock.now_ms();
    world.store().answer_ask(*org, ask.clone(), Answer::Expired, None, now).await?;
    assert_eq!(world.settle(&session).await?, [Interrupted]);
    let made = made(&world, &session).await?;
    assert_eq!(made[0].3, "Nobody answered in time, so this call never ran.");
    world.check().await
}

#[tokio::test]
async fn calls_without_asks_run_while_others_wait() -> Result<()> {
    let world = World::new().await?;
    let session =
        session(&world, &[("bash", "*", RuleAction::Ask), ("bash", "touch *", RuleAction::Allow)])
            .await?;
    world.script(calls("job", 0, vec![shell("rm -f a"), shell("touch b")]))?;
    world.script(says("job", 1, "done"))?;
    world.prompt(&session, "job").await?;
    let asks = sleeps(&world, &session).await?;
    assert_eq!(asks.len(), 1);
    ensure!(session.root.join("b").exists(), "it needed no leave");
    // Its result is durable before the session sleeps.
    let kinds = world.kinds(&session).await?;
    ensure!(kinds.contains(&"tool.settled"), "{kinds:?}");
    answered(&world, &asks[0], Answer::Once).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.check().await
}

#[tokio::test]
async fn an_answer_is_taken_while_another_call_runs() -> Result<()> {
    let world = World::new().await?;
    let session = session(&world, &[("edit", "*", RuleAction::Ask)]).await?;
    let write = call("write", json!({"path": "a.txt", "content": "x"}));
    world.script(calls("job", 0, vec![shell("until [ -e a.txt ]; do sleep 0.05; done"), write]))?;
    world.script(says("job", 1, "done"))?;
    world.prompt(&session, "job").await?;
    let person = async {
        world.until_kind(&session, "tool.asked").await?;
        let asks = pending(&world, &session).await?;
        answered(&world, &asks[0], Answer::Once).await
    };
    let (settled, answered) = tokio::join!(world.settle(&session), person);
    answered?;
    assert_eq!(settled?, [Completed], "it never slept");
    world.check().await
}

/// The body starts in a write after its answer, so a death anywhere leaves one body at most.
#[tokio::test]
async fn a_worker_that_dies_around_an_answer_runs_one_body() -> Result<()> {
    for writes in 1..=4 {
        let world = World::new().await?;
        let session = session(&world, &ASK_SHELL).await?;
        world.script(calls("job", 0, vec![shell("echo x >> a")]))?;
        world.script(says("job", 1, "done"))?;
        world.prompt(&session, "job").await?;
        let slept = life(&world, &session, writes, Duration::ZERO).await?;
        world.take_over(&session).await?;
        if slept.is_none() {
            sleeps(&world, &session).await.with_context(|| format!("after {writes} writes"))?;
        }
        let asks = pending(&world, &session).await?;
        assert_eq!(asks.len(), 1, "after {writes} writes");
        ensure!(!session.root.join("a").exists());
        answered(&world, &asks[0], Answer::Once).await?;
        // It dies again, once it has claimed the session, or once the start is written.
        life(&world, &session, writes.min(2), Duration::ZERO).await?;
        world.take_over(&session).await?;
        world.settle(&session).await?;
        let bodies = session.content("a");
        ensure!(bodies.len() <= 2, "{bodies:?} after {writes} writes");
        world.check().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_call_beyond_those_that_may_wait_never_runs() -> Result<()> {
    let world = World::new().await?;
    let session = session(&world, &ASK_SHELL).await?;
    let many = (0..34).map(|number| shell(&format!("touch a{number}"))).collect();
    world.script(calls("job", 0, many))?;
    world.script(says("job", 1, "done"))?;
    world.prompt(&session, "job").await?;
    let asks = sleeps(&world, &session).await?;
    assert_eq!(asks.len(), 32);
    assert_eq!(std::fs::read_dir(&session.root)?.count(), 0, "nothing ran without leave");
    for ask in &asks {
        answered(&world, ask, Answer::Once).await?;
    }
    assert_eq!(world.settle(&session).await?, [Completed]);
    let ran = |number: u32| session.root.join(format!("a{number}")).exists();
    assert_eq!((0..34).filter(|number| ran(*number)).count(), 32);
    let made = made(&world, &session).await?;
    ensure!(made[33].3.starts_with("32 calls of this session wait"), "{:?}", made[33]);
    world.check().await
}

// Attack 15 of asks: while a build runs that cannot read asks, nobody is asked.
#[tokio::test]
async fn an_older_level_refuses_what_would_be_asked() -> Result<()> {
    let world = World::with(|settings| settings.rules.asks = None).await?;
    let session = session(&world, &ASK_SHELL).await?;
    world.script(calls("job", 0, vec![shell("touch a")]))?;
    world.script(says("job", 1, "It may not."))?;
    world.prompt(&session, "job").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let asked = |event: &SessionEvent| matches!(event, SessionEvent::ToolAsked(_));
    ensure!(!world.events(&session).await?.iter().any(|event| asked(&event.event)));
    ensure!(made(&world, &session).await?[0].3.contains("nobody can be asked here"));
    world.check().await
}

// Attack 41 of asks.
#[tokio::test]
async fn a_session_made_anew_has_none_of_the_old_asks() -> Result<()> {
    let world = World::new().await?;
    let session = session(&world, &ASK_SHELL).await?;
    world.script(calls("job", 0, vec![shell("touch a")]))?;
    world.prompt(&session, "job").await?;
    let asks = sleeps(&world, &session).await?;
    world.recreate(&session).await?;
    assert_eq!(pending(&world, &session).await?, []);
    let ask: AskId = asks[0].asked.ask.clone();
    assert_eq!(world.store().ask(ORG, ask).await?, None);
    let late = answer(&world, &asks[0], Answer::Once).await;
    ensure!(late.is_err_and(|error| error.to_string().contains("not")), "it is gone");
    world.check_rows().await.map(drop)
}

#[tokio::test]
async fn a_call_in_circles_is_asked_about_the_third_time() -> Result<()> {
    let world = World::new().await?;
    let session = session(&world, &[("doom_loop", "*", RuleAction::Ask)]).await?;
    let same = || shell("echo x >> a");
    world.script(calls("job", 0, vec![same(), same(), same()]))?;
    world.script(says("job", 1, "enough"))?;
    world.prompt(&session, "job").await?;
    let asks = sleeps(&world, &session).await?;
    let [ask] = asks.as_slice() else { bail!("{asks:?}") };
    let (action, names) = ("doom_loop".to_owned(), vec!["shell".to_owned()]);
    let (resources, save) = (names.clone(), names);
    assert_eq!(ask.asked.about, Ask::Permission { action, resources, save });
    assert_eq!(session.content("a"), "x\nx\n");
    answered(&world, ask, Answer::Once).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(session.content("a"), "x\nx\nx\n");

    // Another call ends the row.
    world.script(calls("more", 0, vec![same(), same(), shell("true"), same(), same()]))?;
    world.script(says("more", 1, "done"))?;
    world.prompt(&session, "more").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.check().await
}

// Check heldout-3: a model that polls was cut off, since the row went on over its steps.
#[tokio::test]
async fn a_model_that_polls_is_not_asked_about() -> Result<()> {
    let world = World::new().await?;
    let session = session(&world, &[("doom_loop", "*", RuleAction::Ask)]).await?;
    for round in 0..5 {
        let same = || shell("echo x >> a");
        let made = if round == 4 { vec![same(), same()] } else { vec![same()] };
        world.script(calls("job", round, made))?;
    }
    world.script(says("job", 5, "it is there"))?;
    world.prompt(&session, "job").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(session.content("a"), "x\n".repeat(6));
    world.check().await
}

// Attack 18 of asks: leave was given for a command that the organisation has denied meanwhile.
#[tokio::test]
async fn a_rule_set_meanwhile_beats_the_leave_of_a_person() -> Result<()> {
    let world = World::new().await?;
    let session = session(&world, &ASK_SHELL).await?;
    world.script(calls("job", 0, vec![shell("git push origin"), shell("touch b")]))?;
    world.script(says("job", 1, "not all"))?;
    world.prompt(&session, "job").await?;
    let asks = sleeps(&world, &session).await?;
    of_organisation(&world, r#"{"permission": {"bash": {"git push *": "deny"}}}"#).await?;
    for ask in &asks {
        answered(&world, ask, Answer::Once).await?;
    }
    world.take_over(&session).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let made = made(&world, &session).await?;
    let [(.., push, why), (.., touch, _)] = made.as_slice() else { bail!("{made:?}") };
    assert_eq!((*push, *touch), (ToolOutcomeKind::Failed, ToolOutcomeKind::Completed));
    ensure!(why.contains("organisation"), "{why}");
    ensure!(session.root.join("b").exists());
    world.check().await
}

// Attack 19 of asks: a prompt for an agent without the tool comes while a call waits.
#[tokio::test]
async fn an_agent_chosen_meanwhile_stops_no_waiting_call() -> Result<()> {
    let world = World::new().await?;
    let session = session(&world, &ASK_SHELL).await?;
    world.script(calls("job", 0, vec![shell("touch a")]))?;
    world.script(says("job", 1, "done"))?;
    world.prompt(&session, "job").await?;
    let asks = sleeps(&world, &session).await?;
    prompt_as(&world, &session, "plan", "say 2 words").await?;
    answered(&world, &asks[0], Answer::Once).await?;
    world.settle(&session).await?;
    let made = made(&world, &session).await?;
    let [(.., outcome, text)] = made.as_slice() else { bail!("{made:?}") };
    assert_eq!(*outcome, ToolOutcomeKind::Completed, "{text}");
    ensure!(session.root.join("a").exists());
    world.check().await
}

// Attack 20 of asks: the model has rewritten the rules of its project while one of its calls waits.
#[tokio::test]
async fn a_rule_that_softens_meanwhile_is_no_answer() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    session.file("opencode.json", r#"{"permission": {"bash": "ask"}}"#)?;
    world.script(calls("job", 0, vec![shell("touch a")]))?;
    world.script(says("job", 1, "done"))?;
    world.prompt(&session, "job").await?;
    let asks = sleeps(&world, &session).await?;
    session.file("opencode.json", r#"{"permission": {"bash": "allow"}}"#)?;
    world.take_over(&session).await?;
    assert!(matches!(world.drain(&session).await?, DrainExit::Idle), "it sleeps on");
    assert_eq!(pending(&world, &session).await?.len(), 1);
    ensure!(!session.root.join("a").exists(), "nothing ran");
    answered(&world, &asks[0], Answer::Once).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    ensure!(session.root.join("a").exists());
    world.check().await
}
