//! A worker dies; the next one goes on. Dropping a drain's future is dying: nothing of it runs on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;
use context::{Producer, SourceKey, SystemContext};
use domain::DrainOutcome::{Completed, Failed, Interrupted};
use domain::{ErrorCode, NoticeKind, RecordedEvent, SessionEvent, ToolOutcomeKind, TurnOutcome};
use history::History;
use serde_json::json;
use session::{DrainExit, DrainHandle, ObservedAt, drain_control};
use signals::{Hint, Received, SessionHint, Signals, Subscription, Topic};
use simulated_model::Script;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::tools::{call, calls, says, shell};
use crate::world::{ORG, SOON, Session, World};

/// Signals of a worker that is to die: its drain is stopped within its last commit's hint, so that nothing
/// of it runs on, however fast it is.
struct LastWord {
    inner: Arc<dyn Signals>,
    left: AtomicUsize,
    drain: DrainHandle,
}

#[async_trait]
impl Signals for LastWord {
    fn publish(&self, topic: &Topic, hint: Hint) {
        if matches!(hint, Hint::Session(SessionHint::Committed { .. }))
            && self.left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            self.drain.fence();
        }
        self.inner.publish(topic, hint);
    }

    async fn subscribe(&self, topic: Topic) -> Subscription {
        self.inner.subscribe(topic).await
    }
}

/// A worker that dies `after` its `commits`-th commit. `None`: it died; else how its drain ended before.
pub(crate) async fn life(
    world: &World,
    session: &Session,
    commits: usize,
    after: Duration,
) -> Result<Option<DrainExit>> {
    let mut worker = world.another_worker()?;
    let topic = Topic::Session(ORG, session.at.session.clone());
    let mut hints = worker.signals.subscribe(topic).await;
    let death = async {
        let mut seen = 0;
        while seen < commits {
            match hints.next().await {
                Some(Received::Hint(Hint::Session(SessionHint::Committed { .. }))) => seen += 1,
                Some(Received::Hint(_)) => {}
                Some(Received::Lagged) | None => return,
            }
        }
        if !after.is_zero() {
            sleep(after).await;
        }
    };
    let (drain, control) = drain_control(CancellationToken::new());
    let at_once = if after.is_zero() { commits } else { usize::MAX };
    let inner = worker.signals.clone();
    worker.signals = Arc::new(LastWord { inner, left: AtomicUsize::new(at_once), drain });
    let run = session.run(&worker, control, History::new());
    tokio::select! {
        biased;
        () = death => Ok(None),
        (exit, _) = run => Ok(Some(exit).filter(|exit| !matches!(exit, DrainExit::Fenced))),
    }
}

/// A worker that dies once `due` has come.
pub(crate) async fn dies_once(
    world: &World,
    session: &Session,
    due: impl Future<Output = Result<()>>,
) -> Result<()> {
    let worker = world.another_worker()?;
    let (_drain, control) = drain_control(CancellationToken::new());
    tokio::select! {
        biased;
        came = due => came,
        (exit, _) = session.run(&worker, control, History::new()) => bail!("it ended before: {exit:?}"),
    }
}

fn count(events: &[RecordedEvent], kind: &str) -> usize {
    events.iter().filter(|event| event.event.kind() == kind).count()
}

fn scenario(world: &World) -> Result<()> {
    world.script(Script {
        text: Some("I look.".into()),
        chunk_delay_ms: 2,
        ..calls(
            "job",
            0,
            vec![
                shell("sleep 0.03; echo x >> side-effects"),
                call("read", json!({"path": "a.txt"})),
                call("write", json!({"path": "b.txt", "content": "b\n"})),
                call("edit", json!({"path": "a.txt", "old": "one", "new": "two"})),
            ],
        )
    })?;
    world.script(calls("job", 1, vec![shell("echo y >> side-effects; sleep 0.03")]))?;
    world.script(says("job", 2, "all done"))
}

#[tokio::test]
async fn killed_at_any_commit_and_between_the_work_is_finished_once() -> Result<()> {
    let world = World::new().await?;
    scenario(&world)?;
    let (mut died, mut unknown) = (0, 0);
    for commit in 1..=7 {
        for after in [0, 20] {
            let session = world.session().await?;
            session.file("a.txt", "one\n")?;
            world.prompt(&session, "job").await?;
            if life(&world, &session, commit, Duration::from_millis(after)).await?.is_none() {
                died += 1;
            }
            world.take_over(&session).await?;
            let outcomes = world.settle(&session).await?;
            ensure!(
                outcomes.is_empty() || outcomes == [Completed],
                "{commit} {after}: {outcomes:?}"
            );
            ensure!(world.answer(&session).await? == "all done", "{commit} {after}");
            let events = world.events(&session).await?;
            for mark in ["x", "y"] {
                let ran = session.content("side-effects").matches(mark).count();
                ensure!(ran <= 1, "{commit} {after}: {mark} ran {ran} times");
            }
            for event in &events {
                let SessionEvent::ToolSettled(settled) = &event.event else { continue };
                if settled.outcome == ToolOutcomeKind::Unknown {
                    unknown += 1;
                    ensure!(settled.output.contains("Whether the call had its effect is unknown"));
                } else {
                    ensure!(settled.outcome == ToolOutcomeKind::Completed, "{settled:?}");
                }
            }
            // A call that closed too late to have a row is the model's to repeat, and this one does not.
            let called = |tool: &str| {
                let is = |event: &RecordedEvent| matches!(&event.event, SessionEvent::ToolCalled(called) if called.intent.tool == tool);
                events.iter().any(is)
            };
            let edited = if called("edit") { "two\n" } else { "one\n" };
            let written = if called("write") { "b\n" } else { "" };
            for (name, content) in [("a.txt", edited), ("b.txt", written)] {
                let found = session.content(name);
                ensure!(found == content, "{commit} {after}: {name} is {found:?}");
            }
        }
    }
    // The fault was there: most lives ended by it, some within an unsafe body.
    ensure!(died >= 8 && unknown >= 1, "{died} died, {unknown} unknown");
    world.check().await
}

#[tokio::test]
async fn killed_again_and_again_the_work_is_finished_once() -> Result<()> {
    let world = World::with(|settings| settings.rules.max_recoveries = 100).await?;
    scenario(&world)?;
    for round in 0_u64..5 {
        let session = world.session().await?;
        session.file("a.txt", "one\n")?;
        world.prompt(&session, "job").await?;
        for nth in 0..5 {
            // Every mix of early and late deaths, the same in each run.
            let mix = (round * 5 + nth) * 7 % 30;
            let (commits, after) = (1 + usize::try_from(mix % 3)?, Duration::from_millis(mix));
            let ended = life(&world, &session, commits, after).await?;
            world.take_over(&session).await?;
            if ended.is_some() {
                break;
            }
        }
        let outcomes = world.settle(&session).await?;
        ensure!(outcomes.is_empty() || outcomes == [Completed], "{round}: {outcomes:?}");
        ensure!(world.answer(&session).await? == "all done", "{round}");
        for mark in ["x", "y"] {
            let ran = session.content("side-effects").matches(mark).count();
            ensure!(ran <= 1, "{round}: {mark} ran {ran} times");
        }
    }
    world.check().await
}

#[tokio::test]
async fn a_turn_of_which_nothing_is_durable_starts_over() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(Script { times: Some(1), hang: true, ..says("story", 0, "never") })?;
    world.script(says("story", 0, "the end"))?;
    world.prompt(&session, "story").await?;
    dies_once(&world, &session, world.until_requests(1)).await?;
    world.take_over(&session).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let roles: Vec<_> = world.told(&session).await?.into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["user", "assistant"]);
    let lost = |event: &RecordedEvent| matches!(&event.event, SessionEvent::TurnSettled(settled) if settled.outcome == TurnOutcome::Lost);
    assert_eq!(world.events(&session).await?.into_iter().filter(lost).count(), 1);
    world.check().await
}

#[tokio::test]
async fn text_that_was_checkpointed_is_kept_and_continued() -> Result<()> {
    let world = World::with(|settings| settings.checkpoint_every = SOON).await?;
    let session = world.session().await?;
    world.script(Script {
        times: Some(1),
        hang_after_chunks: Some(4),
        ..says("story", 0, "once upon a time there was")
    })?;
    world.script(says("story", 0, "the end"))?;
    world.prompt(&session, "story").await?;
    assert!(life(&world, &session, 2, Duration::ZERO).await?.is_none());
    world.take_over(&session).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let told = world.told(&session).await?;
    let roles: Vec<_> = told.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "notice", "assistant"]);
    assert!(told[1].1.concat().starts_with("once"), "{told:?}");
    assert_eq!(told[3].1.concat(), "the end");
    world.check().await
}

#[tokio::test]
async fn a_pure_call_runs_again_and_is_given_up_after_three_bodies() -> Result<()> {
    let world = World::with(|settings| settings.rules.max_recoveries = 9).await?;
    let session = world.session().await?;
    // A pure body that never ends by itself: reading a pipe that nobody writes to is refused, so the reply hangs.
    session.file("a.txt", "one\n")?;
    world.script(calls(
        "look",
        0,
        vec![call("read", json!({"path": "a.txt"})), shell("echo $$ > pid; sleep 60")],
    ))?;
    world.script(says("look", 1, "seen"))?;
    world.prompt(&session, "look").await?;
    // Dies right after the intents: no result is durable.
    assert!(life(&world, &session, 2, Duration::ZERO).await?.is_none());
    for _ in 0..2 {
        world.take_over(&session).await?;
        assert!(life(&world, &session, 1, Duration::ZERO).await?.is_none());
    }
    world.take_over(&session).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let events = world.events(&session).await?;
    assert_eq!(count(&events, "tool.started"), 2, "{:?}", world.kinds(&session).await?);
    let outcomes: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.event {
            SessionEvent::ToolSettled(settled) => Some(settled.outcome),
            _ => None,
        })
        .collect();
    assert_eq!(outcomes, [ToolOutcomeKind::Unknown, ToolOutcomeKind::Failed]);
    let told = |event: &RecordedEvent| matches!(&event.event, SessionEvent::NoticeRecorded(notice) if notice.kind == NoticeKind::Recovery);
    assert_eq!(events.iter().filter(|event| told(event)).count(), 1, "one durable notice of it");
    world.check().await
}

#[tokio::test]
async fn an_edit_that_was_done_is_seen_and_one_that_was_not_is_done() -> Result<()> {
    let mut scenes = vec![true, false];
    let mut rounds = 0;
    while let Some(done) = scenes.pop() {
        rounds += 1;
        assert!(rounds < 20, "the result was committed before each death");
        let world = World::new().await?;
        let session = world.session().await?;
        session.file("a.txt", "one\n")?;
        world.script(calls(
            "change",
            0,
            vec![call("edit", json!({"path": "a.txt", "old": "one", "new": "two"}))],
        ))?;
        world.script(says("change", 1, "changed"))?;
        world.prompt(&session, "change").await?;
        assert!(life(&world, &session, 2, Duration::ZERO).await?.is_none());
        // A change that had begun when its worker died still happens: let it, before the scene is set.
        let begun = tokio::time::Instant::now();
        while session.content("a.txt") == "one\n" && begun.elapsed() < Duration::from_secs(2) {
            sleep(Duration::from_millis(10)).await;
        }
        if count(&world.events(&session).await?, "tool.settled") > 0 {
            // It died too late: its last write was on its way already.
            scenes.push(done);
            continue;
        }
        session.file("a.txt", if done { "two\n" } else { "one\n" })?;
        world.take_over(&session).await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
        assert_eq!(session.content("a.txt"), "two\n");
        let events = world.events(&session).await?;
        assert_eq!(count(&events, "tool.started"), usize::from(!done));
        let last = world.requests()?.pop().context("a request")?;
        let told = last.iter().find(|message| message["role"] == "tool").context("a result")?;
        assert!(!told["content"].as_str().unwrap().starts_with("Error"), "{told}");
        world.check().await?;
    }
    Ok(())
}

#[tokio::test]
async fn takeovers_without_progress_end_with_an_error_and_a_prompt_goes_on() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(Script { matches: "poison".into(), hang: true, ..Script::default() })?;
    world.prompt(&session, "poison").await?;
    for _ in 0..4 {
        assert!(life(&world, &session, 1, Duration::ZERO).await?.is_none());
        world.take_over(&session).await?;
    }
    assert_eq!(world.settle(&session).await?, [Failed]);
    let last = world.events(&session).await?.pop().context("an event")?;
    let SessionEvent::DrainEnded(ended) = last.event else { panic!("{last:?}") };
    assert_eq!(ended.error.context("an error")?.code, ErrorCode::SessionRecoveryExhausted);
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.check().await
}

#[tokio::test]
async fn twenty_deaths_with_progress_in_between_do_not_stop_the_work() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    session.file("a.txt", "one\n")?;
    session.file("b.txt", "two\n")?;
    let prompt = ["read a.txt", "read b.txt"].repeat(10).join(" then ") + " then read a.txt";
    world.prompt(&session, &prompt).await?;
    for life_number in 0..20 {
        let ended = life(&world, &session, 3, Duration::ZERO).await?;
        ensure!(ended.is_none(), "life {life_number} ended: {ended:?}");
        world.take_over(&session).await?;
    }
    assert_eq!(world.settle(&session).await?, [Completed]);
    let events = world.events(&session).await?;
    assert_eq!(count(&events, "tool.settled"), 21);
    world.check().await
}

#[tokio::test]
async fn a_hand_over_at_a_boundary_is_no_recovery() -> Result<()> {
    let world = World::with(|settings| settings.rules.max_recoveries = 0).await?;
    let session = world.session().await?;
    session.file("a.txt", "one\n")?;
    world.prompt(&session, "read a.txt then read a.txt then say 2 words").await?;
    for handed in 0..3 {
        let stopping = CancellationToken::new();
        let (handle, control) = drain_control(stopping.clone());
        let ask = async {
            world.until_requests(handed + 1).await?;
            stopping.cancel();
            Ok::<_, anyhow::Error>(())
        };
        let worker = world.another_worker()?;
        let run = world.drive(&worker, &session, &handle, control, History::new());
        let (ran, asked) = tokio::join!(run, ask);
        asked?;
        match ran?.0 {
            DrainExit::HandedOver => {}
            DrainExit::Ended(Completed) if handed == 2 => {}
            other => panic!("{handed}: {other:?}"),
        }
        world.take_over(&session).await?;
    }
    world.settle(&session).await?;
    assert_eq!(count(&world.events(&session).await?, "turn.started"), 3);
    world.check().await
}

#[tokio::test]
async fn an_interrupt_of_work_whose_worker_died_is_applied_without_a_call() -> Result<()> {
    let world = World::with(|settings| settings.checkpoint_every = SOON).await?;
    for (prompt, due) in
        [("poison", None), ("story", Some("text.checkpointed")), ("work", Some("tool.called"))]
    {
        world.model().set_scripts(vec![
            Script { matches: "poison".into(), hang: true, ..Script::default() },
            Script { hang_after_chunks: Some(3), ..says("story", 0, "once upon a time") },
            calls("work", 0, vec![shell("sleep 60"), call("read", json!({"path": "a.txt"}))]),
        ])?;
        let session = world.session().await?;
        let before = world.model().counts().requests;
        world.prompt(&session, prompt).await?;
        // Its request has arrived: none is on its way any more when they are counted.
        let due = async {
            world.until_requests(before + 1).await?;
            match due {
                Some(kind) => world.until_kind(&session, kind).await,
                None => Ok(()),
            }
        };
        dies_once(&world, &session, due).await?;
        world.interrupt(&session).await?;
        let asked = world.model().counts().requests;
        world.take_over(&session).await?;
        assert_eq!(world.settle(&session).await?, [Interrupted], "{prompt}");
        assert_eq!(world.model().counts().requests, asked, "{prompt}");
        world.prompt(&session, "say 2 words").await?;
        assert_eq!(world.settle(&session).await?, [Completed], "{prompt}");
    }
    world.check().await
}

#[tokio::test]
async fn killed_in_back_off_the_next_worker_asks_again() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(Script {
        matches: "say".into(),
        times: Some(1),
        status: Some(503),
        retry_after_ms: Some(60_000),
        ..Script::default()
    })?;
    world.prompt(&session, "say 2 words").await?;
    assert!(life(&world, &session, 2, Duration::from_millis(20)).await?.is_none());
    world.take_over(&session).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(world.model().counts().requests, 2);
    world.check().await
}

/// A look at the files that never ends: what kills a worker, as far as a dropped drain can tell.
struct Deadly {
    looks: AtomicUsize,
}

#[async_trait]
impl Producer<ObservedAt> for Deadly {
    async fn observe(&self, _at: &ObservedAt) -> SystemContext {
        self.looks.fetch_add(1, Ordering::Relaxed);
        std::future::pending().await
    }
}

// Finding security 3: files that kill their worker were looked at again and again, by one worker after the other.
#[tokio::test]
async fn two_deaths_at_the_files_of_a_session_stop_it() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.prompt(&session, "say 3 words").await?;
    let deadly = Arc::new(Deadly { looks: AtomicUsize::new(0) });
    for deaths in 1..=2 {
        let workspace = session.workspace(session.token()).unproven();
        let key = SourceKey::fixed("test/deadly");
        let _registered = workspace.sources().register(key, deadly.clone())?;
        session.is_held(&workspace);
        let died = async {
            while deadly.looks.load(Ordering::Relaxed) < deaths {
                sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            ended = world.drain(&session) => bail!("it ended: {:?}", ended?),
            () = died => {}
        }
    }
    let workspace = session.workspace(session.token()).unproven();
    session.is_held(&workspace);
    assert_eq!(world.settle(&session).await?, [Failed]);
    assert_eq!(deadly.looks.load(Ordering::Relaxed), 2, "nobody looks a third time");
    assert!(world.model().requests().is_empty());
    // Whoever has mended the files sends another prompt.
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.check().await
}
