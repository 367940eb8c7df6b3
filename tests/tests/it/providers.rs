//! Every protocol from the command line: a single call against a third-party server, and whole sessions with
//! providers of the catalog, every body explained.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use journeys::{Cli, World, oracle};
use serde_json::{Value, json};

use crate::npm;

/// A protocol, a model, and aimock's path for it.
const AT_AIMOCK: [(&str, &str, &str); 5] = [
    ("openai-chat", "gpt-5", "/v1"),
    ("openai-responses", "gpt-5", "/v1"),
    ("anthropic-messages", "claude-sonnet-4-5", "/v1"),
    ("gemini", "gemini-2.5-pro", "/v1beta"),
    ("bedrock-converse", "anthropic.claude-sonnet-4-5-20250929-v1:0", ""),
];

fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

#[tokio::test]
async fn one_call_in_each_protocol_to_a_server_that_nobody_here_wrote() -> Result<()> {
    let served = npm::serve("aimock", "@copilotkit/aimock", "server.mjs").await;
    let cli = Cli::new("http://127.0.0.1:9", "no service is asked")?;
    for (protocol, model, path) in AT_AIMOCK {
        let url = format!("{}{path}", served.url);
        let asks = async |text: &str, key: &str| {
            let at = ["--protocol", protocol, "--base-url", url.as_str()];
            let mut args = vec!["llm", "stream", "--model", model, "--key", key];
            args.extend(at);
            let content = json!([{ "type": "text", "text": text }]);
            let request = json!({ "messages": [{ "role": "user", "content": content }] });
            cli.run_with_input(&args, &request.to_string()).await
        };
        let ended = asks("say hello", "key-of-tests").await?;
        ensure!(ended.code == Some(0), "{protocol}: {ended:?}");
        let events = ended.json_lines()?;
        let texts = of_type(&events, "text-delta");
        let said: String = texts.iter().filter_map(|event| event["text"].as_str()).collect();
        ensure!(said == "Hello from elsewhere, ä漢🦀.", "{protocol}: {ended:?}");
        let finish = events.last().context("an end")?;
        ensure!(finish["type"] == "finish" && finish["usage"]["totalTokens"] == 16, "{finish}");

        let ended = asks("the weather?", "key-of-tests").await?;
        let events = ended.json_lines()?;
        let called: Vec<_> =
            of_type(&events, "tool-call").into_iter().map(|call| &call["input"]).collect();
        let inputs = [json!({"city": "Paris", "days": 2}), json!({"city": "Oslo \"north\"\n"})];
        ensure!(ended.code == Some(0) && called == [&inputs[0], &inputs[1]], "{ended:?}");

        for (text, key, reason) in [
            ("too often", "key-of-tests", "rate-limit"),
            ("too long", "key-of-tests", "overflow"),
            ("say hello", "another-key", "authentication"),
        ] {
            let ended = asks(text, key).await?;
            let last = ended.json_lines()?.pop().context("an error")?;
            ensure!(ended.code == Some(1) && last["reason"] == reason, "{protocol}: {ended:?}");
        }
    }
    Ok(())
}

/// A provider of the catalog, one of its models, and the simulated model's path for its protocol.
const OF_THE_CATALOG: [(&str, &str, &str); 5] = [
    ("groq", "llama-3.3-70b-versatile", "/v1"),
    ("openai", "gpt-5", "/v1"),
    ("anthropic", "claude-sonnet-4-5", "/v1"),
    ("google", "gemini-2.5-pro", "/v1beta"),
    ("amazon-bedrock", "anthropic.claude-sonnet-4-5-20250929-v1:0", ""),
];

/// A member of bodies that distinguishes a protocol from those after it.
const FORMS: [&str; 5] = ["input", "contents", "modelId", "system", "messages"];

#[tokio::test]
async fn providers_of_the_catalog_run_whole_sessions_and_every_body_is_explained() -> Result<()> {
    let world = World::new().await?;
    let up = world.up().await?;
    let (cli, api) = (up.cli()?, up.api());
    let url = world.model_url();
    let root = url.trim_end_matches("/v1");
    let mut forms: BTreeSet<&str> = BTreeSet::new();
    for (provider, _, path) in OF_THE_CATALOG {
        let settings = json!({ "overrides": { "api": format!("{root}{path}") } });
        let put = api.request(reqwest::Method::PUT, &format!("/platform/provider/{provider}"));
        api.send(put.json(&settings)).await?.ok()?;
        let key = "key-0123456789abcdef";
        let credential = json!({ "provider": provider, "label": "tests", "key": key });
        api.post("/platform/credential", &credential).await?.ok()?;
    }
    // Only now, because a worker caches settings for some seconds.
    for (provider, model, _) in OF_THE_CATALOG {
        let place = world.workspace(provider)?;
        let directory = place.to_str().context("UTF-8")?;
        let before = world.model().requests().len();
        let prompt = "create a.txt containing hello then read a.txt then say 3 words";
        let model = format!("{provider}/{model}");
        let args = ["run", prompt, "--json", "--directory", directory, "--model", &model];
        let ended = cli.run(&args).await?;
        ensure!(ended.code == Some(0), "{model}: {ended:?}");
        ensure!(std::fs::read_to_string(place.join("a.txt"))?.trim() == "hello", "{model}");
        let report = ended.report()?;
        let turns = report["turns"].as_array().context("turns")?;
        ensure!(turns.len() == 3, "{model}: {report}");
        let sent = world.model().requests().split_off(before);
        for turn in turns {
            let turn = turn.as_str().context("an id")?;
            let explained = cli.run(&["explain", turn]).await?;
            ensure!(explained.code == Some(0), "{model}: {explained:?}");
            let body = cli.run(&["explain", turn, "--body"]).await?;
            let was_sent = sent.iter().any(|asked| asked.body.as_ref() == Some(&body.out));
            ensure!(body.code == Some(0) && was_sent, "{model}: never sent: {body:?}");
            let asked: Value = serde_json::from_str(&body.out)?;
            forms.extend(FORMS.into_iter().find(|form| asked.get(form).is_some()));
        }
    }
    ensure!(forms.len() == FORMS.len(), "each in its own protocol: {forms:?}");
    oracle(api, world.model()).await?;
    up.stop(&world).await
}
