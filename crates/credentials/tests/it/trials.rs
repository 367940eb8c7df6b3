//! Keys and addresses whose trial nobody finished.

use std::time::Duration;

use credentials::{ClientSecret, Material, NewSecret, ON_TRIAL, ProviderSettings};
use llm_client::{Auth, Secret};
use serde_json::{Value, json};

use crate::world::World;

const MINUTE: Duration = Duration::from_mins(1);

fn new(label: &str, key: &str) -> NewSecret {
    NewSecret {
        owner: String::new(),
        provider: "acme".into(),
        label: label.into(),
        material: Material::ApiKey(Secret::new(key)),
    }
}

fn settings(value: Value) -> ProviderSettings {
    serde_json::from_value(value).expect("settings")
}

#[tokio::test]
async fn a_forgotten_trial_gives_way_to_the_key_before() {
    let world = World::new().await;
    let (process, org) = (world.process(), world.org);
    let key = async || {
        let found = process.auth(org, None, "acme").await.expect("an answer")?;
        let Auth::Key(key) = found.auth else { panic!("{found:?}") };
        Some(key.expose().to_owned())
    };
    process.add(org, new("older", "sk-older")).await.expect("kept");
    world.pass(MINUTE);
    process.add(org, new("default", "sk-default")).await.expect("kept");
    world.pass(MINUTE);
    process.add(org, new(ON_TRIAL, "sk-trial")).await.expect("kept");
    world.pass(9 * MINUTE);
    assert_eq!(key().await.as_deref(), Some("sk-trial"));
    assert_eq!(process.list(org).await.expect("a list").len(), 3);

    world.pass(MINUTE);
    assert_eq!(key().await.as_deref(), Some("sk-default"));
    process.add(org, new(ON_TRIAL, "sk-again")).await.expect("kept");
    world.pass(10 * MINUTE);
    let rows = process.list(org).await.expect("a list");
    let shown: Vec<_> = rows.iter().map(|row| (row.label.as_str(), row.active)).collect();
    assert_eq!(shown, [("default", true), ("older", false)]);
}

#[tokio::test]
async fn a_forgotten_trial_of_a_server_is_taken_back() {
    let world = World::new().await;
    let (process, org) = (world.process(), world.org);
    let set = async |provider: &str, value: Value| {
        let settings = settings(value);
        process.set_provider(org, provider, &settings, &ClientSecret::Keep).await
    };
    let before = json!({ "api": "http://127.0.0.1:9/before" });
    let tried = json!({ "api": "http://127.0.0.1:9/tried", "models": { "m": {} } });
    set("new", json!({ "overrides": tried, "trial": {} })).await.expect("set");
    let old = json!({ "env": { "A": "b" }, "overrides": tried, "trial": { "before": before } });
    set("old", old).await.expect("set");
    set("proven", json!({ "overrides": tried })).await.expect("set");
    world.pass(9 * MINUTE);
    assert_eq!(process.providers(org).await.expect("a list").len(), 3);

    world.pass(MINUTE);
    let all = process.providers(org).await.expect("a list");
    let shown: Vec<_> = all.into_iter().map(|setup| (setup.provider, setup.settings)).collect();
    let old = settings(json!({ "env": { "A": "b" }, "overrides": before }));
    let proven = settings(json!({ "overrides": tried }));
    assert_eq!(shown, [("old".to_owned(), old), ("proven".to_owned(), proven)]);

    let secret = json!({ "headers": { "x-api-key": "secret" } });
    let refused = set("new", json!({ "trial": { "before": secret } })).await;
    assert!(refused.expect_err("a secret").to_string().contains("trial.before"));
}
