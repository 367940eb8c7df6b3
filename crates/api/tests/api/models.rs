//! The catalog that clients see.

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
    // Other organisations see neither.
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
    // A single provider's full list includes its disallowed and hidden models.
    let whole = ok(&gateway, "GET", "/platform/model?provider=openai&all=true", key, None).await;
    let models = whole["models"].as_array().expect("a list");
    let marked = |id: &str| {
        let model = models.iter().find(|model| model["id"] == id).expect("it is listed");
        (model["allowed"].clone(), model["status"].clone())
    };
    assert_eq!(marked("openai/gpt-5"), (Value::Null, json!("available")));
    assert_eq!(marked("openai/gpt-5-nano"), (json!(false), json!("available")));
    assert_eq!(marked("openai/o3"), (json!(false), json!("available")));
    assert!(models.iter().any(|model| model["status"] == "hidden"), "{models:?}");
    assert!(listed.iter().all(|id| models.iter().any(|model| model["id"] == *id)));
    let nobody = ok(&gateway, "GET", "/platform/model?provider=nobody&all=true", key, None).await;
    assert_eq!(nobody["models"], json!([]));
    // A disallowed default model hides no other model of its provider.
    let own = json!({ "overrides": { "api": "http://127.0.0.1:9/v1", "models": { "other": {} } } });
    ok(&gateway, "PUT", "/platform/provider/simulated", key, Some(own)).await;
    let some = json!({ "overrides": { "deny": ["simulated/echo"] } });
    ok(&gateway, "PUT", "/platform/provider/*", key, Some(some)).await;
    let usable = ok(&gateway, "GET", "/platform/model?provider=simulated", key, None).await;
    assert_eq!(ids(&usable["models"]), ["simulated/other"]);
    // Finding trial 13: any name was accepted for the simulated model.
    let project = ok(&gateway, "POST", "/project/init", key, Some(json!({}))).await;
    let sessions = format!("/project/{}/session", project["id"].as_str().expect("an id"));
    let (status, refused) =
        call(&gateway, "POST", &sessions, key, Some(json!({ "model": "simulated/echoo" }))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
    assert!(refused.to_string().contains("did you mean `simulated/echo`?"), "{refused}");
    ok(&gateway, "POST", &sessions, key, Some(json!({ "model": "simulated/other" }))).await;
    // A name without its provider is looked for at all providers, not only at the default one.
    let (status, refused) =
        call(&gateway, "POST", &sessions, key, Some(json!({ "model": "gpt-5-mini" }))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
    assert!(refused.to_string().contains("did you mean `openai/gpt-5-mini`"), "{refused}");
    let (status, _) = call(&gateway, "GET", "/platform/model?al=true", key, None).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_can_be_called_is_listed_as_such() -> Result<()> {
    let world = World::new().await?;
    let file = json!({
        "free": { "api": "http://127.0.0.1:9/v1", "models": { "m": {} } },
        "keyed": { "api": "http://127.0.0.1:9/v1", "env": ["KEYED_API_KEY"], "models": {
            "old": { "status": "deprecated", "release_date": "2024-01-31" },
            "new": { "cost": { "input": 1.5, "output": 2 }, "limit": { "context": 9, "output": 3 },
                "reasoning": true, "release_date": "2026-01-31" },
            "secret": { "status": "hidden" },
        } },
        "sited": { "api": "https://${SITED_HOST}/v1", "env": ["SITED_HOST", "SITED_API_KEY"], "models": { "m": {} } },
        "thief": { "api": "https://thief.example/v1", "env": ["ANTHROPIC_API_KEY"], "models": { "m": {} } },
    });
    let (catalog, _) = catalog::ingest(file.to_string().as_bytes())?;
    let feed = Arc::new(catalog::Feed::new(Arc::new(catalog)));
    let keys = ["KEYED_API_KEY", "SITED_API_KEY", "ANTHROPIC_API_KEY"].map(str::to_owned).into();
    let models = ModelList { catalog: Some(feed), keys };
    let gateway = router(ApiState::start(ApiParts { models, ..world.parts() }));
    let key = world.key.as_str();

    let usable = ok(&gateway, "GET", "/platform/model", key, None).await;
    assert_eq!(ids(&usable["models"]), ["simulated/echo", "free/m", "keyed/new", "keyed/old"]);
    assert_eq!(usable["models"][3]["status"], "deprecated");
    assert_eq!(usable["catalog"], json!({ "updated": "" }), "it is the first one, and not fetched");
    let connected = ok(&gateway, "GET", "/provider", key, None).await["connected"].take();
    assert_eq!(connected, json!(["simulated", "free", "keyed"]));

    // The same list in the newer shape, newest first.
    let listed = ok(&gateway, "GET", "/api/model?location[directory]=/workspace", key, None).await;
    assert_eq!(
        listed["location"],
        json!({ "directory": "/workspace", "project": { "id": "global", "directory": "/workspace" } })
    );
    assert_eq!(ids(&listed["data"]), ["new", "old", "echo", "m"]);
    let new = &listed["data"][0];
    assert_eq!(
        (&new["providerID"], &new["time"]["released"]),
        (&json!("keyed"), &json!(1_769_817_600_000_i64))
    );
    let cost = json!([{ "input": 1.5, "output": 2.0, "cache": { "read": 0.0, "write": 0.0 } }]);
    assert_eq!((&new["cost"], &new["status"]), (&cost, &json!("active")));
    assert_eq!(new["limit"], json!({ "context": 9, "output": 3 }));
    let efforts: Vec<&str> = ids(&new["variants"]);
    assert_eq!(efforts, ["high", "low", "medium"]);
    assert_eq!(new["variants"][0]["body"], json!({ "reasoningEffort": "high" }));
    assert_eq!(
        (&listed["data"][1]["status"], &listed["data"][1]["cost"]),
        (&json!("deprecated"), &json!([]))
    );
    let providers = ok(&gateway, "GET", "/api/provider", key, None).await;
    assert_eq!(ids(&providers["data"]), ["simulated", "free", "keyed"]);
    let api = json!({ "type": "aisdk", "package": "@ai-sdk/openai-compatible", "url": "http://127.0.0.1:9/v1" });
    assert_eq!(providers["data"][2]["api"], api);

    // The process's key is not for an organisation's own address.
    let own = json!({ "env": { "KEYED_REGION": "x" } });
    ok(&gateway, "PUT", "/platform/provider/keyed", key, Some(own)).await;
    let own = json!({ "overrides": { "api": "http://127.0.0.1:9/own" } });
    ok(&gateway, "PUT", "/platform/provider/sited", key, Some(own)).await;
    let connected = ok(&gateway, "GET", "/provider", key, None).await["connected"].take();
    assert_eq!(connected, json!(["simulated", "free", "sited"]));
    let strangers = ok(&gateway, "GET", "/provider", &world.stranger, None).await;
    assert_eq!(strangers["connected"], json!(["simulated", "free", "keyed"]));
    Ok(())
}
