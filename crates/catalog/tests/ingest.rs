//! Tests of reading models.dev's file through the public interface.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use catalog::{IngestError, ModelStatus, Rates, ingest, shipped};
use serde_json::{Value, json};

fn read(file: &Value) -> (catalog::Catalog, Vec<String>) {
    let (catalog, skipped) = ingest(file.to_string().as_bytes()).unwrap();
    (catalog, skipped.iter().map(ToString::to_string).collect())
}

#[test]
fn one_bad_model_is_left_out_and_named_and_never_the_file() {
    let file = json!({
        "good": { "name": "Good", "npm": "@ai-sdk/openai", "env": ["GOOD_KEY"], "models": {
            "a": { "id": "a", "name": "A" },
            "b": { "id": "b", "name": 7 },
            "c": 3,
        } },
        "no/slash": { "models": { "a": {} } },
        "empty": { "models": {} },
        "odd": 7,
        "none": { "models": { "x": [] } },
    });
    let (catalog, skipped) = read(&file);
    let ids: Vec<&str> = catalog.providers().map(|provider| provider.id.as_str()).collect();
    assert_eq!((ids, catalog.models()), (vec!["good"], 1));
    let named = [
        "model `good/b`:",
        "model `good/c`:",
        "provider `no/slash`:",
        "provider `empty`:",
        "provider `odd`:",
        "model `none/x`:",
        "provider `none`:",
    ];
    for name in named {
        assert!(skipped.iter().any(|skipped| skipped.starts_with(name)), "{name} in {skipped:?}");
    }
    assert_eq!(skipped.len(), named.len());
}

#[test]
fn what_is_no_catalog_is_an_error_that_says_so() {
    for (file, is) in [("[]", "no JSON object"), ("", "no JSON object"), ("{}", "no usable model")]
    {
        let error = ingest(file.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(is), "{error}");
    }
    let error = ingest(&vec![b' '; catalog::MAX_BYTES + 1]).unwrap_err();
    assert!(matches!(error, IngestError::TooLarge { .. }));
}

#[test]
fn the_version_names_the_content_and_nothing_else() {
    let version = |text: &str| ingest(text.as_bytes()).unwrap().0.version;
    let one = r#"{"a":{"models":{"x":{"cost":{"input":1}},"y":{}}},"b":{"models":{"z":{}}}}"#;
    let moved = r#"{"b":{"models":{"z":{"knowledge":"2026"}}}, "a":{"models":{"y":{},"x":{"cost":{"input":1.0}}}}}"#;
    let dearer = r#"{"a":{"models":{"x":{"cost":{"input":2}},"y":{}}},"b":{"models":{"z":{}}}}"#;
    assert_eq!(version(one), version(moved));
    assert_ne!(version(one), version(dearer));
    assert_eq!(version(one).len(), "models.dev:".len() + 16);
}

#[test]
fn statuses_modes_tiers_and_places_of_real_models_are_as_models_dev_has_them() {
    let catalog = shipped();
    let openai = catalog.provider("openai").unwrap();
    let (plain, fast) = (&openai.models["gpt-5.5"], &openai.models["gpt-5.5-fast"]);
    assert_eq!((fast.api_id(), fast.name.as_str()), ("gpt-5.5", "GPT-5.5 Fast"));
    assert_eq!(fast.domains.body["service_tier"], "priority");
    assert!(plain.domains.body.is_empty());
    assert_eq!(plain.domains.request_options["openai"]["store"], false);
    assert_eq!(fast.prices.as_ref().unwrap().base.input, 12_500_000);
    let dear = catalog.provider("302ai").unwrap().models["claude-opus-4-7"].prices.clone().unwrap();
    let above = Rates {
        input: 10_000_000,
        output: 37_500_000,
        cache_read: 1_000_000,
        cache_write: 12_500_000,
        ..Rates::default()
    };
    assert_eq!(dear.at(200_001), &above);
    let all = || catalog.providers().flat_map(|provider| provider.models.values());
    let count = |status| all().filter(|model| model.status == status).count();
    assert_eq!(count(ModelStatus::Deprecated), 62);
    assert!(count(ModelStatus::Hidden) >= 80, "{}", count(ModelStatus::Hidden));
    let kimi = &catalog.provider("azure").unwrap().models["kimi-k2.6"];
    assert_eq!(kimi.npm.as_deref(), Some("@ai-sdk/openai-compatible"));
    assert_eq!(kimi.shape.as_deref(), Some("completions"));
    assert_eq!(
        catalog.provider("cloudflare-workers-ai").unwrap().key_names().collect::<Vec<_>>(),
        ["CLOUDFLARE_API_KEY"]
    );
    assert!(all().all(|model| model.limits.context != Some(0)));
}
