//! Whole sessions in each protocol, and one that changes its provider with every prompt.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use domain::DrainOutcome::{Completed, Interrupted};
use domain::{ModelRef, SideOutcome};
use llm_client::Endpoint;
use llm_protocol::Protocol;
use serde_json::json;
use session::{ConfiguredModels, ProviderHub, ProviderSetup};
use simulated_model::{Outcome, Script};

use crate::compaction::outcomes;
use crate::scenarios::{With, send, turns_started};
use crate::tools::{call, calls, says, shell};
use crate::world::{SOON, World, until};

/// In what the model says of itself to nobody but its own provider.
const THOUGHT: &str = "One command works. The file is not there.";

/// A world whose providers are the protocols by their ids, all of them the simulated model.
pub(crate) async fn speaking(default: Protocol) -> Result<World> {
    let mut world = World::new().await?;
    let setup = |protocol: &Protocol| {
        let endpoint = Endpoint::new(world.model_root());
        (protocol.id().to_owned(), ProviderSetup::new(*protocol, endpoint))
    };
    let providers: BTreeMap<_, _> = Protocol::ALL.iter().map(setup).collect();
    let default = ModelRef::new(default.id(), "simulated");
    world.worker.models = ProviderHub::of(ConfiguredModels::new(default, providers));
    Ok(world)
}

/// A thought, two calls at once of which one fails, and a last word.
pub(crate) fn looks(world: &World, matches: &str) -> Result<()> {
    let missing = call("read", json!({ "path": "missing.txt" }));
    let looks = calls(matches, 0, vec![shell("echo hello"), missing]);
    world.script(Script { reasoning: Some(THOUGHT.into()), ..looks })?;
    world.script(says(matches, 1, "Seen."))
}

/// How a failed call is told.
fn failure(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::OpenAiChat => r#""content":"Error: "#,
        Protocol::OpenAiResponses => r#""output":"Error: "#,
        Protocol::AnthropicMessages => r#""is_error":true"#,
        Protocol::Gemini => r#""response":{"error":"#,
        Protocol::BedrockConverse => r#""status":"error""#,
    }
}

/// The signatures of the simulated model in a body: 64 hexadecimal digits as a string.
fn signatures(body: &str) -> BTreeSet<&str> {
    let is_hex =
        |text: &&str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    body.split('"').filter(is_hex).collect()
}

fn bodies(world: &World) -> Result<Vec<String>> {
    let requests = world.model().requests().into_iter();
    requests.map(|request| request.body.context("a body that was kept")).collect()
}

async fn whole_session(protocol: Protocol) -> Result<()> {
    let world = speaking(protocol).await?;
    let session = world.session().await?;
    looks(&world, "look around")?;
    let of =
        |matches: &str| Script { matches: matches.into(), times: Some(1), ..Script::default() };
    world.script(Script { cut_after_chunks: Some(4), ..of("say 6 words") })?;
    world.script(Script { status: Some(429), retry_after_ms: Some(50), ..of("say 7 words") })?;
    world.script(Script { overflow: true, ..of("say 8 words") })?;

    world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(world.answer(&session).await?, "w0 w1 w2");

    world.prompt(&session, "look around").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let told = bodies(&world)?.pop().context("a request")?;
    ensure!(told.contains("hello") && told.contains(failure(protocol)), "{told}");
    let signed = usize::from(protocol != Protocol::OpenAiChat);
    ensure!(signatures(&told).len() >= signed, "its thought is not signed: {told}");
    ensure!(told.contains(THOUGHT) == (signed > 0), "its thought did not come back: {told}");

    world.prompt(&session, "say 6 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let cut = world.model().requests().into_iter().filter(|asked| asked.outcome == Outcome::Cut);
    assert_eq!(cut.count(), 1);
    let continued = bodies(&world)?.pop().context("a request")?;
    ensure!(continued.contains("w0 w1"), "what came before the cut is not told: {continued}");

    for prompt in ["say 7 words", "say 8 words", "say 4 words"] {
        world.prompt(&session, prompt).await?;
        assert_eq!(world.settle(&session).await?, [Completed], "{prompt}");
    }
    assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Completed]);
    assert_eq!(world.answer(&session).await?, "w0 w1 w2 w3");
    let refused = world
        .model()
        .requests()
        .into_iter()
        .filter_map(|asked| (asked.outcome == Outcome::Refused).then_some(asked.status));
    assert_eq!(refused.collect::<Vec<_>>(), [Some(429), Some(400)]);
    world.check().await
}

#[tokio::test]
async fn a_whole_session_in_chat_completions() -> Result<()> {
    whole_session(Protocol::OpenAiChat).await
}

#[tokio::test]
async fn a_whole_session_in_responses() -> Result<()> {
    whole_session(Protocol::OpenAiResponses).await
}

#[tokio::test]
async fn a_whole_session_in_anthropic_messages() -> Result<()> {
    whole_session(Protocol::AnthropicMessages).await
}

#[tokio::test]
async fn a_whole_session_in_gemini() -> Result<()> {
    whole_session(Protocol::Gemini).await
}

#[tokio::test]
async fn a_whole_session_in_bedrock_converse() -> Result<()> {
    whole_session(Protocol::BedrockConverse).await
}

#[tokio::test]
async fn an_interrupt_in_the_middle_of_a_stream_keeps_what_was_said_in_each_protocol() -> Result<()>
{
    let mut world = speaking(Protocol::OpenAiChat).await?;
    Arc::make_mut(&mut world.worker.settings).checkpoint_every = SOON;
    for (at, protocol) in Protocol::ALL.iter().enumerate() {
        let session = world.session().await?;
        let story = format!("story {at}");
        world.script(Script {
            reasoning: Some(THOUGHT.into()),
            hang_after_chunks: Some(16),
            ..says(&story, 0, "once upon a time there was a king who had no crown")
        })?;
        let with = || With { model: Some((protocol.id(), "simulated")), ..With::default() };
        send(&world, &session, &story, with()).await?;
        let meanwhile = async {
            world.until_kind(&session, "text.checkpointed").await?;
            world.interrupt(&session).await
        };
        let (outcomes, asked) = tokio::join!(world.settle(&session), meanwhile);
        ensure!(matches!(asked?, store::Interrupted::Applied { .. }), "{protocol:?}");
        assert_eq!(outcomes?, [Interrupted], "{protocol:?}");
        let is_told_to_stop = || {
            let asked = world.model().requests().pop();
            asked.is_some_and(|asked| asked.outcome == Outcome::ClientGone)
        };
        until(is_told_to_stop).await.with_context(|| format!("{protocol:?}"))?;
        let (_, said) = world.told(&session).await?.pop().context("a message")?;
        let said = said.last().context("a part")?.clone();
        ensure!(said.starts_with("once"), "{protocol:?}: {said}");
        // An unsigned beginning of a thought is nothing that a provider takes back: what goes on is what was said.
        send(&world, &session, "say 2 words", with()).await?;
        assert_eq!(world.settle(&session).await?, [Completed], "{protocol:?}");
        let told = bodies(&world)?.pop().context("a request")?;
        ensure!(told.contains(&said), "{protocol:?} is not told {said}: {told}");
        assert_eq!(world.answer(&session).await?, "w0 w1", "{protocol:?}");
    }
    world.check().await
}

#[tokio::test]
async fn a_session_changes_its_provider_with_every_prompt_and_tells_each_all_but_foreign_state()
-> Result<()> {
    const ROUTE: [Protocol; 6] = [
        Protocol::OpenAiChat,
        Protocol::AnthropicMessages,
        Protocol::Gemini,
        Protocol::BedrockConverse,
        Protocol::OpenAiResponses,
        Protocol::AnthropicMessages, // and back, to what it signed itself
    ];
    let world = speaking(Protocol::OpenAiChat).await?;
    let session = world.session().await?;
    looks(&world, "look around")?;
    let mut prompts = Vec::new();
    let mut seen: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (at, protocol) in ROUTE.into_iter().enumerate() {
        prompts.push(format!("look around for the {at}. time"));
        let before = bodies(&world)?.len();
        let with = With { model: Some((protocol.id(), "simulated")), ..With::default() };
        send(&world, &session, &prompts[at], with).await?;
        assert_eq!(world.settle(&session).await?, [Completed], "{protocol:?}");
        let sent = bodies(&world)?.split_off(before);
        assert_eq!(sent.len(), 2, "{protocol:?}");
        for body in &sent {
            for prompt in &prompts {
                ensure!(
                    body.contains(prompt.as_str()),
                    "{protocol:?} is not told {prompt}: {body}"
                );
            }
        }
        let told = &sent[1];
        let failures = told.matches(failure(protocol)).count();
        assert_eq!(failures, at + 1, "{protocol:?}: {told}");
        seen.entry(protocol.id()).or_default().extend(signatures(told).into_iter().map(Into::into));
        let foreign = seen.iter().filter(|(id, _)| **id != protocol.id());
        for (id, foreign) in foreign {
            let shared = foreign.iter().find(|state| told.contains(state.as_str()));
            ensure!(shared.is_none(), "{protocol:?} sees state of {id}: {told}");
        }
    }
    let counts = |protocol: Protocol| seen[protocol.id()].len();
    assert_eq!(counts(Protocol::OpenAiChat), 0);
    for protocol in &ROUTE[1..5] {
        ensure!(counts(*protocol) > 0, "{protocol:?} got nothing back that it signed");
    }
    let epochs: BTreeSet<_> =
        turns_started(&world, &session).await?.into_iter().map(|turn| turn.epoch).collect();
    assert_eq!(epochs.len(), 1, "another provider is no reason to tell everything anew");
    world.check().await
}
