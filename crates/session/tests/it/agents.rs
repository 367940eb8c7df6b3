//! Agents: which one a turn has, what it may do, and that its calls keep it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use domain::DrainOutcome::{Completed, Failed};
use domain::{
    Clock as _, Delivery, ErrorCode, IdMint, MessageId, PartId, Permitted, PromptAdmitted,
    PromptPart, SessionEvent, Stamp, ToolClass, ToolOutcomeKind,
};
use history::hash_hex;
use serde_json::{Value, json};
use session::{Agent, Agents};
use store::NewPrompt;

use crate::recovery::life;
use crate::tools::{call, calls, says, shell};
use crate::world::{ORG, Session, World};

/// Admits a prompt that chooses an agent.
pub(crate) async fn prompt_as(
    world: &World,
    session: &Session,
    agent: &str,
    text: &str,
) -> Result<()> {
    let now = world.clock.now_ms();
    let mut mint = IdMint::after(Stamp::default(), now);
    let prompt = PromptAdmitted {
        by: None,
        message: MessageId::mint(&mut mint),
        delivery: Delivery::Steer,
        parts: vec![PromptPart::Text { id: PartId::mint(&mut mint), text: text.to_owned() }],
        agent: Some(agent.to_owned()),
        model: None,
        wake: true,
        digest: hash_hex(text.as_bytes()),
        synthetic: None,
    };
    let new = NewPrompt { session: session.at.session.clone(), prompt, now };
    world.store().admit_prompt(ORG, new).await?;
    Ok(())
}

/// The built-in agents, one of them changed.
pub(crate) fn changed(name: &str, change: impl FnOnce(&mut Agent)) -> Agents {
    let agents = Agents::default();
    let mut agent = agents.get(name).expect("one that there is").clone();
    change(&mut agent);
    agents.with(agent)
}

/// The names of the tools that each request offered.
pub(crate) fn offered(world: &World) -> Result<Vec<Vec<String>>> {
    let names = |body: Option<String>| -> Result<Vec<String>> {
        let body: Value = serde_json::from_str(&body.context("a body that was kept")?)?;
        let tools = body["tools"].as_array().context("tools")?;
        let name = |tool: &Value| tool["function"]["name"].as_str().unwrap_or_default().to_owned();
        Ok(tools.iter().map(name).collect())
    };
    world.model().requests().into_iter().map(|request| names(request.body)).collect()
}

/// The calls so far: tool, class, outcome and what the model was told.
pub(crate) async fn made(
    world: &World,
    session: &Session,
) -> Result<Vec<(String, ToolClass, ToolOutcomeKind, String)>> {
    let events = world.events(session).await?;
    let settled = |call: &domain::CallId| {
        events.iter().find_map(|event| match &event.event {
            SessionEvent::ToolSettled(settled) if settled.call == *call => Some(settled.clone()),
            _ => None,
        })
    };
    let one = |event: &SessionEvent| match event {
        SessionEvent::ToolCalled(called) => {
            let settled = settled(&called.intent.call)?;
            let tool = called.intent.tool.clone();
            Some((tool, called.class, settled.outcome, settled.output))
        }
        _ => None,
    };
    Ok(events.iter().filter_map(|event| one(&event.event)).collect())
}

/// The agent of each turn.
async fn turns(world: &World, session: &Session) -> Result<Vec<String>> {
    let agent = |event: &SessionEvent| match event {
        SessionEvent::TurnStarted(started) => Some(started.agent.clone()),
        _ => None,
    };
    Ok(world.events(session).await?.iter().filter_map(|event| agent(&event.event)).collect())
}

const WRITE_REFUSED: &str =
    "the agent plan may not use write; the tools that it may use: glob, grep, read, skill";

#[tokio::test]
async fn each_turn_has_the_instructions_and_the_tools_of_the_agent_chosen_last() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.prompt(&session, "say 1 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    for (agent, text) in [("plan", "say 2 words"), ("build", "say 3 words")] {
        prompt_as(&world, &session, agent, text).await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
        world.prompt(&session, "say 4 words").await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
    }
    assert_eq!(turns(&world, &session).await?, ["build", "plan", "plan", "build", "build"]);
    let looking = ["glob", "grep", "read", "skill"];
    let all = ["edit", "glob", "grep", "read", "shell", "skill", "write"];
    let offered = offered(&world)?;
    assert_eq!(offered, [&all[..], &looking, &looking, &all, &all]);
    let requests = world.requests()?;
    let told = |request: usize| requests[request][0]["content"].to_string();
    ensure!(told(1).contains("you have no tools that write"), "{}", told(1));
    ensure!(!told(0).contains("you have no tools that write"));
    assert_eq!((told(0), told(1)), (told(3), told(2)), "to the byte");
    let kinds = world.kinds(&session).await?;
    assert_eq!(kinds.iter().filter(|kind| **kind == "epoch.started").count(), 1, "one epoch");
    ensure!(!kinds.contains(&"context.updated"), "nothing that is told has changed");
    world.check().await
}

#[tokio::test]
async fn a_call_that_the_agent_may_not_make_is_told_so_and_nothing_happens() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let write = call("write", json!({"path": "a.txt", "content": "x"}));
    world.script(calls(
        "job",
        0,
        vec![write, shell("touch b"), call("glob", json!({"pattern": "*"}))],
    ))?;
    world.script(says("job", 1, "It may not."))?;
    prompt_as(&world, &session, "plan", "job").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let made = made(&world, &session).await?;
    let told: Vec<_> =
        made.iter().map(|(_, class, outcome, text)| (*class, *outcome, text.as_str())).collect();
    let refused = |text| (ToolClass::Pure, ToolOutcomeKind::Failed, text);
    let shell = WRITE_REFUSED.replace("write", "shell");
    assert_eq!(told[..2], [refused(WRITE_REFUSED), refused(&shell)]);
    assert_eq!((told[2].0, told[2].1), (ToolClass::Pure, ToolOutcomeKind::Completed));
    assert_eq!(std::fs::read_dir(&session.root)?.count(), 0, "nothing was made");
    assert_eq!(world.answer(&session).await?, "It may not.");
    world.check().await
}

#[tokio::test]
async fn a_call_keeps_the_agent_of_its_turn_when_another_is_chosen_meanwhile() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(calls(
        "job",
        0,
        vec![shell("until [ -e go ]; do sleep 0.01; done; touch done")],
    ))?;
    world.prompt(&session, "job").await?;
    let switch = async {
        world.until_kind(&session, "tool.called").await?;
        prompt_as(&world, &session, "plan", "say 2 words").await?;
        session.file("go", "")
    };
    let (settled, switched) = tokio::join!(world.settle(&session), switch);
    switched?;
    assert_eq!(settled?, [Completed]);
    ensure!(session.root.join("done").exists(), "the call went on");
    assert_eq!(turns(&world, &session).await?, ["build", "plan"]);
    world.check().await
}

#[tokio::test]
async fn a_call_keeps_the_agent_of_its_turn_over_a_takeover() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(calls("job", 0, vec![call("write", json!({"path": "a.txt", "content": "x"}))]))?;
    world.script(says("job", 1, "It may not."))?;
    prompt_as(&world, &session, "plan", "job").await?;
    // The turn's intent, then its reply with the call.
    ensure!(life(&world, &session, 2, Duration::ZERO).await?.is_none());
    ensure!(
        made(&world, &session).await?.is_empty()
            && world.kinds(&session).await?.contains(&"tool.called")
    );
    prompt_as(&world, &session, "build", "say 2 words").await?;
    world.take_over(&session).await?;
    world.settle(&session).await?;
    let made = made(&world, &session).await?;
    let expected =
        ("write".to_owned(), ToolClass::Pure, ToolOutcomeKind::Failed, WRITE_REFUSED.to_owned());
    assert_eq!(made, [expected]);
    ensure!(!session.root.join("a.txt").exists());
    assert_eq!(turns(&world, &session).await?, ["plan", "build"]);
    world.check().await
}

#[tokio::test]
async fn an_agent_that_there_is_not_fails_before_any_request_and_another_goes_on() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    for prompts in 1..=2 {
        prompt_as(&world, &session, "review", "say 2 words").await?;
        assert_eq!(world.settle(&session).await?, [Failed]);
        let last = world.events(&session).await?.pop().context("an event")?.event;
        let SessionEvent::DrainEnded(ended) = last else { panic!("{last:?}") };
        let error = ended.error.context("why")?;
        assert_eq!(error.code, ErrorCode::SessionAgentUnknown);
        ensure!(
            error.message.contains("no agent `review` (there is build, explore, general, plan)"),
            "{error:?}"
        );
        assert_eq!(world.model().counts().requests, 0);
        assert_eq!(world.messages(&session).await?.len(), prompts, "it was taken up");
    }
    // One without a choice has the one chosen last.
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    prompt_as(&world, &session, "build", "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(world.answer(&session).await?, "w0 w1 w2");
    ensure!(!world.kinds(&session).await?.contains(&"context.updated"));
    world.check().await
}

#[tokio::test]
async fn each_agent_has_its_own_steps() -> Result<()> {
    let world = World::with(|settings| {
        settings.rules.max_steps = 3;
        settings.rules.agents = changed("plan", |plan| plan.steps = Some(1));
    })
    .await?;
    let session = world.session().await?;
    world.script(calls("again", 0, vec![call("glob", json!({"pattern": "*"}))]))?;
    world.script(calls("again", 1, vec![call("glob", json!({"pattern": "*"}))]))?;
    world.script(says("again", 2, "Enough."))?;
    prompt_as(&world, &session, "plan", "again").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(world.model().counts().requests, 1, "its last step is its first");
    prompt_as(&world, &session, "build", "again").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(world.model().counts().requests, 4);
    let (plan, build) = (world.messages(&session).await?, turns(&world, &session).await?);
    assert_eq!(build, ["plan", "build", "build", "build"]);
    ensure!(!plan.is_empty());
    world.check().await
}

#[tokio::test]
async fn an_agent_without_tools_is_offered_none() -> Result<()> {
    let agents = changed("plan", |plan| plan.tools = Permitted::NOTHING.clone());
    let world = World::with(|settings| settings.rules.agents = agents).await?;
    let session = world.session().await?;
    prompt_as(&world, &session, "plan", "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let body = world.model().requests().pop().and_then(|request| request.body).context("a body")?;
    ensure!(!body.contains("\"tools\""), "{body}");
    world.check().await
}
