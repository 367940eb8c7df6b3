//! Writes the corpus of (rows, body) that `crates/history/tests/corpus.rs` keeps rebuilding.
//!
//! Run by hand when a request has a shape that the corpus lacks, after a line for it in [`CASES`] and a function that
//! lives through it: `cargo nextest run -p session --run-ignored only corpus`. A file that is there is never written
//! again: it is what a build of its day has sent. Names begin with the protocol's id where it is not chat.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use domain::Delivery::Steer;
use domain::DrainOutcome::Completed;
use domain::{Control, Permitted, SessionEvent};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use history::History;
use llm_protocol::Protocol;
use serde_json::{Value, json};
use session::{DrainExit, Workspace, drain, drain_control};
use simulated_model::Script;
use tokio_util::sync::CancellationToken;

use crate::agents::prompt_as;
use crate::hosted::{self, Canned};
use crate::protocols::{looks, speaking};
use crate::scenarios::{With, send};
use crate::scenarios_forks;
use crate::tools::{calls, says, shell};
use crate::world::{ORG, Session, World};

/// Where its files are, as a model of the corpus is told.
const SHOWN: &str = "/workspace/demo";

fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../history/tests/corpus/wire-1");
    folder.join(name).with_extension("json")
}

/// Drains in a workspace that is shown without the machine's paths, until nothing is left to do.
async fn run(world: &World, session: &Session) -> Result<()> {
    let workspace = Workspace::at(session.root.clone(), SHOWN.to_owned(), None);
    loop {
        let (_handle, control) = drain_control(CancellationToken::new());
        let (at, token) = (&session.at, session.token());
        let run = drain(&world.worker, at, token, &workspace, control, History::new());
        match Box::pin(run).await.0 {
            DrainExit::Idle => return Ok(()),
            DrainExit::Ended(Completed) | DrainExit::Moved(_) => {}
            other => anyhow::bail!("a drain of the corpus ended otherwise: {other:?}"),
        }
    }
}

async fn prompt(world: &World, session: &Session, text: &str) -> Result<()> {
    world.prompt(session, text).await?;
    run(world, session).await
}

/// Writes the session's rows, and the bodies that the model received for them.
async fn keep(world: &World, session: &Session, name: &str) -> Result<()> {
    world.check().await?;
    let mut received = BTreeMap::new();
    for request in world.model().requests() {
        received.insert(request.sha256, request.body.context("a body that was kept")?);
    }
    write(world, session, name, &received).await
}

/// The same, of another provider than the model.
async fn keep_of(world: &World, session: &Session, name: &str, provider: &Canned) -> Result<()> {
    world.check_rows().await?;
    let bodies = provider.bodies().into_iter();
    let received = bodies.map(|body| (history::hash_hex(body.as_bytes()), body)).collect();
    write(world, session, name, &received).await
}

async fn write(
    world: &World,
    session: &Session,
    name: &str,
    received: &BTreeMap<String, String>,
) -> Result<()> {
    let (mut components, mut requests) = (BTreeMap::new(), Vec::new());
    let events = world.events(session).await?;
    for recorded in &events {
        let SessionEvent::AttemptStarted(started) = &recorded.event else { continue };
        let attempt = world.store().attempt(ORG, started.attempt.to_string()).await?;
        let Some(body) = received.get(&attempt.body_hash) else { continue };
        let names: BTreeMap<String, String> = serde_json::from_str(&attempt.components)?;
        for hash in names.values() {
            let bytes = world.store().component(ORG, hash).await?;
            components.insert(hash.clone(), String::from_utf8(bytes)?);
        }
        requests.push(json!({
            "attempt": attempt.id.as_str(),
            "turn": attempt.turn.as_str(),
            "through": attempt.through.0,
            "wire_version": attempt.wire_version,
            "components": names,
            "body_sha256": attempt.body_hash,
            "body": body,
        }));
    }
    ensure!(!requests.is_empty(), "{name} sent nothing");
    let rows: Vec<Value> = events
        .iter()
        .map(|row| {
            json!({
                "seq": row.seq.0,
                "id": row.id.as_str(),
                "time_ms": row.time,
                "kind": row.event.kind(),
                "version": row.event.version(),
                "payload": row.event.payload(),
            })
        })
        .collect();
    let case = json!({ "events": rows, "components": components, "requests": requests });
    Ok(std::fs::write(file(name), serde_json::to_string_pretty(&case)? + "\n")?)
}

async fn tools(name: &str) -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    session.file("a.txt", "one \"quoted\" line\nä second, with a tab\t.\n")?;
    prompt(&world, &session, "read a.txt and also list the files").await?;
    prompt(&world, &session, "read missing.txt then run printf '%s' 1e21").await?;
    keep(&world, &session, name).await
}

async fn context_update(name: &str) -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    session.file("AGENTS.md", "Use tabs.\n")?;
    prompt(&world, &session, "say 2 words").await?;
    session.file("AGENTS.md", "Use spaces.\n")?;
    world.clock.advance(Duration::from_hours(24));
    prompt(&world, &session, "say 3 words").await?;
    std::fs::remove_file(session.root.join("AGENTS.md"))?;
    prompt(&world, &session, "say 4 words").await?;
    keep(&world, &session, name).await
}

async fn step_limit(name: &str) -> Result<()> {
    let world = World::with(|settings| settings.rules.max_steps = 2).await?;
    let session = world.session().await?;
    session.file("a.txt", "one\n")?;
    prompt(&world, &session, "read a.txt then read a.txt then read a.txt").await?;
    prompt(&world, &session, "say 2 words").await?;
    keep(&world, &session, name).await
}

async fn continuation(name: &str) -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let cut =
        Script { cut_after_chunks: Some(6), times: Some(1), ..says("story", 0, "a b c d e f g h") };
    world.script(cut)?;
    prompt(&world, &session, "a story").await?;
    prompt(&world, &session, "say 2 words").await?;
    keep(&world, &session, name).await
}

/// A worker dies while an *unsafe* call runs.
async fn takeover(name: &str) -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(calls("job", 0, vec![shell("echo > begun; sleep 60")]))?;
    world.script(says("job", 1, "looked"))?;
    world.prompt(&session, "job").await?;
    tokio::select! {
        ran = run(&world, &session) => anyhow::bail!("its worker did not die: {ran:?}"),
        begun = session.until_file("begun") => drop(begun?),
    }
    world.take_over(&session).await?;
    run(&world, &session).await?;
    keep(&world, &session, name).await
}

/// A reminder, a checkpoint, what was kept, and a second summary upon the first.
async fn compaction(name: &str) -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    session.file("a.txt", "one\n")?;
    prompt(&world, &session, "read a.txt then say 3 words").await?;
    prompt(&world, &session, "say 4 words").await?;
    world
        .script(Script { times: Some(1), ..says("<summary-request>", 0, "I would rather not.") })?;
    world.compact(&session, Steer).await?;
    run(&world, &session).await?;
    prompt(&world, &session, "say 5 words").await?;
    world.compact(&session, Steer).await?;
    run(&world, &session).await?;
    prompt(&world, &session, "say 6 words").await?;
    keep(&world, &session, name).await
}

async fn title(name: &str) -> Result<()> {
    let world = World::new().await?;
    let session = world.session_titled("New session", false).await?;
    prompt(&world, &session, "say 7 words").await?;
    keep(&world, &session, name).await
}

/// A context message that the parent was told, and one that only the fork is.
async fn fork(name: &str) -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    session.file("AGENTS.md", "Use tabs.\n")?;
    prompt(&world, &session, "read AGENTS.md then say 2 words").await?;
    session.file("AGENTS.md", "Use spaces.\n")?;
    prompt(&world, &session, "say 3 words").await?;
    let cut = world.prompt(&session, "say 4 words").await?;
    run(&world, &session).await?;
    world.clock.advance(Duration::from_hours(24));
    let fork = scenarios_forks::fork(&world, &session, Some(&cut)).await?;
    prompt(&world, &fork, "say 5 words").await?;
    keep(&world, &fork, name).await
}

/// Back to before a message that a Compaction had replaced, with a context message of then and one of now.
async fn revert(name: &str) -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    session.file("a.txt", "one\n")?;
    prompt(&world, &session, "read a.txt then say 2 words").await?;
    session.file("AGENTS.md", "Use tabs.\n")?;
    let message = world.prompt(&session, "say 3 words").await?;
    run(&world, &session).await?;
    world.clock.advance(Duration::from_hours(24));
    prompt(&world, &session, "say 4 words").await?;
    world.compact(&session, Steer).await?;
    run(&world, &session).await?;
    prompt(&world, &session, "say 5 words").await?;
    world.control(&session, Steer, Control::Revert { message, files: false }).await?;
    run(&world, &session).await?;
    prompt(&world, &session, "say 6 words").await?;
    keep(&world, &session, name).await
}

/// Work that continues elsewhere, in an epoch of its own.
async fn moved(name: &str) -> Result<()> {
    let world = World::new().await?;
    let here = world.session().await?;
    here.file("AGENTS.md", "Use tabs.\n")?;
    prompt(&world, &here, "say 2 words").await?;
    here.file("AGENTS.md", "Use spaces.\n")?;
    let (there, away) = world.elsewhere(&here, false).await?;
    there.file("AGENTS.md", "Use nothing.\n")?;
    world.script(Script {
        gate: Some("door".into()),
        ..calls("look", 0, vec![shell("echo looked")])
    })?;
    world.script(says("look", 1, "seen"))?;
    world.prompt(&here, "look").await?;
    let asks = async {
        world.until_requests(2).await?;
        world.control(&here, Steer, away).await?;
        anyhow::Ok(world.model().open_gate("door")?)
    };
    let (left, asked) = tokio::join!(run(&world, &here), asks);
    asked?;
    left?;
    run(&world, &there).await?;
    prompt(&world, &there, "say 3 words").await?;
    keep(&world, &there, name).await
}

/// Skills of one agent and of another, and a call that is refused.
async fn agents(name: &str) -> Result<()> {
    let only = crate::agents::changed("plan", |plan| plan.skills = Permitted::only(["review"]));
    let world = World::with(|settings| settings.rules.agents = only).await?;
    let session = world.session().await?;
    for skill in ["deploy", "review"] {
        let folder = format!(".opencode/skills/{skill}");
        std::fs::create_dir_all(session.root.join(&folder))?;
        let text = format!("---\nname: {skill}\ndescription: How we {skill}.\n---\nAs ever.\n");
        session.file(&format!("{folder}/SKILL.md"), &text)?;
    }
    prompt(&world, &session, "say 2 words").await?;
    world.script(calls("try", 0, vec![shell("echo never")]))?;
    world.script(says("try", 1, "as I thought"))?;
    prompt_as(&world, &session, "plan", "try").await?;
    run(&world, &session).await?;
    prompt_as(&world, &session, "build", "say 3 words").await?;
    run(&world, &session).await?;
    keep(&world, &session, name).await
}

/// The protocol that a case's name begins with.
fn protocol_of(name: &str) -> Result<Protocol> {
    let mut known = Protocol::ALL.iter().copied();
    known.find(|protocol| name.starts_with(protocol.id())).with_context(|| name.to_owned())
}

/// A thought that goes back with its state, two calls at once of which one fails, a reply that is cut and goes on, and
/// something told in the middle.
async fn reasoning(name: &str) -> Result<()> {
    let world = speaking(protocol_of(name)?).await?;
    let session = world.session().await?;
    looks(&world, "look around")?;
    prompt(&world, &session, "look around").await?;
    world.clock.advance(Duration::from_hours(24));
    let cut = Script { cut_after_chunks: Some(6), times: Some(1), ..says("story", 0, "a b c d e") };
    world.script(cut)?;
    prompt(&world, &session, "a story").await?;
    prompt(&world, &session, "say 2 words").await?;
    keep(&world, &session, name).await
}

/// A title, a draft that is no summary, its reminder, a checkpoint and what is told after it.
async fn asides(name: &str) -> Result<()> {
    let world = speaking(protocol_of(name)?).await?;
    let session = world.session_titled("New session", false).await?;
    looks(&world, "look around")?;
    prompt(&world, &session, "look around").await?;
    let refusal = says("<summary-request>", 0, "I would rather not.");
    world.script(Script { times: Some(1), ..refusal })?;
    world.compact(&session, Steer).await?;
    run(&world, &session).await?;
    prompt(&world, &session, "say 3 words").await?;
    keep(&world, &session, name).await
}

/// A tool that the provider ran, told to itself again.
async fn hosted(name: &str) -> Result<()> {
    let protocol = protocol_of(name)?;
    let (world, provider) = hosted::world(protocol).await?;
    let session = world.session().await?;
    for text in ["When was he born?", "Are you sure?"] {
        provider.then(&hosted::runs(protocol));
        prompt(&world, &session, text).await?;
    }
    keep_of(&world, &session, name, &provider).await
}

/// A conversation that goes from each provider to the next, and back to one that has signed something in it.
async fn switch(name: &str) -> Result<()> {
    let world = speaking(Protocol::OpenAiChat).await?;
    let session = world.session().await?;
    looks(&world, "look around")?;
    let back = Protocol::ALL.iter().skip(1).take(1);
    for (at, protocol) in Protocol::ALL.iter().chain(back).enumerate() {
        let with = With { model: Some((protocol.id(), "simulated")), ..With::default() };
        send(&world, &session, &format!("look around for the {at}. time"), with).await?;
        run(&world, &session).await?;
    }
    keep(&world, &session, name).await
}

type Case = for<'a> fn(&'a str) -> LocalBoxFuture<'a, Result<()>>;

const CASES: [(&str, Case); 23] = [
    ("tools", |name| tools(name).boxed_local()),
    ("context-update", |name| context_update(name).boxed_local()),
    ("step-limit", |name| step_limit(name).boxed_local()),
    ("continuation", |name| continuation(name).boxed_local()),
    ("takeover", |name| takeover(name).boxed_local()),
    ("compaction", |name| compaction(name).boxed_local()),
    ("title", |name| title(name).boxed_local()),
    ("fork", |name| fork(name).boxed_local()),
    ("revert", |name| revert(name).boxed_local()),
    ("move", |name| moved(name).boxed_local()),
    ("agents", |name| agents(name).boxed_local()),
    ("openai-responses-reasoning", |name| reasoning(name).boxed_local()),
    ("openai-responses-asides", |name| asides(name).boxed_local()),
    ("openai-responses-hosted", |name| hosted(name).boxed_local()),
    ("anthropic-messages-reasoning", |name| reasoning(name).boxed_local()),
    ("anthropic-messages-asides", |name| asides(name).boxed_local()),
    ("anthropic-messages-hosted", |name| hosted(name).boxed_local()),
    ("gemini-reasoning", |name| reasoning(name).boxed_local()),
    ("gemini-asides", |name| asides(name).boxed_local()),
    ("gemini-hosted", |name| hosted(name).boxed_local()),
    ("bedrock-converse-reasoning", |name| reasoning(name).boxed_local()),
    ("bedrock-converse-asides", |name| asides(name).boxed_local()),
    ("switch", |name| switch(name).boxed_local()),
];

#[tokio::test]
#[ignore = "writes files of the repository; see the module's first lines"]
async fn the_corpus_is_written() -> Result<()> {
    for (name, live) in CASES {
        if !file(name).exists() {
            live(name).await.with_context(|| name.to_owned())?;
        }
    }
    Ok(())
}
