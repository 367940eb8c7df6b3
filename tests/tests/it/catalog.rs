//! A catalog from another URL: a new provider answers, and a broken feed changes nothing.

use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use journeys::{Cli, Up, World, eventually, oracle};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Serves a text that the test can change, and returns its URL.
async fn serve(text: Arc<Mutex<String>>) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/api.json", listener.local_addr()?);
    #[expect(clippy::disallowed_methods, reason = "the test's own server ends with its runtime")]
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let body = text.lock().expect("no panic under it").clone();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
            let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
            let mut asked = [0; 4_096];
            let _read = client.read(&mut asked).await;
            let _written = client.write_all(answer.as_bytes()).await;
        }
    });
    Ok(url)
}

async fn listed(cli: &Cli, args: &[&str]) -> Result<Value> {
    let ended = cli.run(&[&["models", "--json"], args].concat()).await?;
    serde_json::from_str(&ended.out).with_context(|| format!("{ended:?}"))
}

#[tokio::test]
async fn a_provider_that_only_the_metadata_knows_answers_and_a_broken_feed_changes_nothing()
-> Result<()> {
    let world = World::new().await?;
    let model = |more: Value| {
        let mut model = json!({ "name": "That", "tool_call": true, "limit": { "context": 100_000, "output": 4_000 } });
        model
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("one too").clone());
        model
    };
    let metadata = json!({ "invented": { "name": "Invented", "npm": "@invented/sdk", "env": ["INVENTED_API_KEY"],
        "api": world.model_url(), "models": {
            "that": model(json!({ "cost": { "input": 1, "output": 2 } })),
            "that-old": model(json!({ "status": "deprecated" })),
            "that-secret": model(json!({ "status": "hidden" })) } },
        "locked": { "api": world.model_url(), "env": ["LOCKED_API_KEY"], "models": { "m": {} } } });
    let text = Arc::new(Mutex::new(metadata.to_string()));
    let url = serve(text.clone()).await?;
    let mut flags = vec!["up".to_owned(), "--port=0".into()];
    flags.extend(world.flags());
    flags.extend([format!("--catalog-url={url}"), "--catalog-refresh=1".into()]);
    let environment = [("INVENTED_API_KEY".to_owned(), "sk-invented".to_owned())];
    let up = Up::launch(&world, &flags, &environment, Some(journeys::KEY)).await?;
    let cli = up.cli()?.within(&world.workspace("invented")?);

    let models = listed(&cli, &[]).await?;
    let ids: Vec<&str> = models["models"]
        .as_array()
        .context("a list")?
        .iter()
        .filter_map(|it| it["id"].as_str())
        .collect();
    ensure!(ids == ["custom/simulated", "invented/that", "invented/that-old"], "{models}");
    let table = cli.run(&["models", "locked"]).await?;
    ensure!(table.out.contains("locked/m ") && table.out.contains("not set up"), "{table:?}");
    ensure!(table.err.contains(&format!("seen at {url} ")), "{table:?}");
    let none = cli.run(&["models", "nobody"]).await?;
    ensure!(none.code == Some(1) && none.out.is_empty(), "{none:?}");

    let ask = async |model: &str| {
        let ended = cli.run(&["run", "say 2 words", "--model", model]).await?;
        ensure!(ended.code == Some(0) && ended.out.contains("w0 w1"), "{ended:?}");
        let sent = world.model().requests().pop().context("a request")?;
        let body: Value = serde_json::from_str(&sent.body.context("a body")?)?;
        let name = model.split_once('/').map(|(_, name)| name);
        ensure!(body["model"].as_str() == name, "{body}");
        ensure!(sent.headers.get("authorization").is_some_and(|it| it == "present"));
        Ok(())
    };
    ask("invented/that").await?;
    ask("invented/that-old").await?;

    *text.lock().expect("no panic under it") = "<html>".into();
    eventually("the broken feed is noticed", 60, async || {
        let failure = listed(&cli, &[]).await?["catalog"]["failure"].take();
        Ok(failure.as_str().is_some_and(|it| it.contains("no JSON object")).then_some(()))
    })
    .await?;
    ask("invented/that").await?;
    let told = up.process().stderr();
    ensure!(told.matches("the catalog of models stays as it is").count() == 1, "{told}");
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await
}
