//! The catalog, as clients are shown it.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use api::{ApiParts, ApiState, ModelList, router};
use axum::Router;
use http::StatusCode;
use serde_json::{Value, json};

use crate::world::{World, call, ok};

fn gateway(world: &World) -> Router {
    let feed = catalog::Feed::new(catalog::shipped());
    let keys = BTreeSet::from(["ANTHROPIC_API_KEY".to_owned()]);
    let models = ModelList { catalog: Some(Arc::new(feed)), keys };
    router(ApiState::start(ApiParts { models, ..world.parts() }))
}

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(|entry| entry["id"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stock_clients_see_the_catalog_and_what_is_set_up_of_it() -> Result<()> {
    let world = World::new().await?;
    let (gateway, key) = (gateway(&world), world.key.as_str());
    let set_up = ok(&gateway, "GET", "/config/providers", key, None).await;
    assert_eq!(ids(&set_up["providers"]), ["simulated", "anthropic"]);
    assert_eq!(set_up["default"]["simulated"], "echo");
    let claude = &set_up["providers"][1];
    assert_eq!((&claude["source"], &claude["env"]), (&json!("env"), &json!(["ANTHROPIC_API_KEY"])));
    let model = &claude["models"]["claude-opus-4-5"];
    assert_eq!(
        (&model["cost"]["input"], &model["limit"]["context"], &model["status"]),
        (&json!(5.0), &json!(200_000), &json!("active"))
    );
    assert_eq!(model["api"]["npm"], "@ai-sdk/anthropic");
    assert_eq!(model["variants"]["high"]["thinking"]["budgetTokens"], 16_000);
    let newest = set_up["default"]["anthropic"].as_str().expect("a model");
    assert!(claude["models"][newest]["capabilities"]["toolcall"] == true, "{newest}");

    let new = json!({ "provider": "groq", "label": "team", "key": "gsk-0123456789abcdef" });
    ok(&gateway, "POST", "/platform/credential", key, Some(new)).await;
    let acme = json!({ "overrides": { "api": "http://127.0.0.1:9/v1", "models": { "tiny": { "limit": { "context": 9 } } } } });
    ok(&gateway, "PUT", "/platform/provider/acme", key, Some(acme)).await;
    let all = ok(&gateway, "GET", "/provider", key, None).await;
    let connected: BTreeSet<String> = serde_json::from_value(all["connected"].clone())?;
    let expected = ["simulated", "anthropic", "groq", "acme"].map(str::to_owned);
    assert_eq!(connected, BTreeSet::from(expected));
    assert_eq!(ids(&all["all"]).len(), 120 + 2);
    // Others see neither.
    let strangers = ok(&gateway, "GET", "/provider", &world.stranger, None).await;
    assert_eq!(strangers["connected"], json!(["simulated", "anthropic"]));
    assert!(!ids(&strangers["all"]).contains(&"acme"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_are_listed_with_what_they_cost_and_only_those_that_are_allowed() -> Result<()> {
    let world = World::new().await?;
    let (gateway, key) = (gateway(&world), world.key.as_str());
    let some = json!({ "overrides": { "allow": ["simulated", "openai/gpt-5*"], "deny": ["openai/gpt-5-nano"] } });
    ok(&gateway, "PUT", "/platform/provider/*", key, Some(some)).await;
    let usable = ok(&gateway, "GET", "/platform/model", key, None).await;
    assert_eq!(ids(&usable["models"]), ["simulated/echo"]);
    assert_eq!(usable["default"], "simulated/echo");
    assert_eq!(usable["version"], catalog::shipped().version);
    let openai = ok(&gateway, "GET", "/platform/model?provider=openai", key, None).await;
    let listed = ids(&openai["models"]);
    assert!(listed.contains(&"openai/gpt-5.5") && listed.contains(&"openai/gpt-5.5-fast"));
    assert!(!listed.contains(&"openai/gpt-5-nano") && !listed.contains(&"openai/o3"));
    let models = openai["models"].as_array().expect("a list");
    let model = models.iter().find(|model| model["id"] == "openai/gpt-5").expect("it is allowed");
    assert_eq!(model["connected"], false);
    assert_eq!(model["usdPerMillionTokens"]["input"], 1.25);
    assert_eq!(model["variants"], json!(["high", "low", "medium", "minimal"]));
    let all = ok(&gateway, "GET", "/platform/model?all=true", key, None).await;
    assert_eq!(ids(&all["models"]).len(), listed.len() + 1);
    let (status, _) = call(&gateway, "GET", "/platform/model?al=true", key, None).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    Ok(())
}
