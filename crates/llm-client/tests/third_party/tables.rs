//! Tests every provider in the table that the server knows by its path, with the key in the provider's
//! header.

use std::collections::BTreeSet;

use llm_client::providers::{self, Model, Provider, Setup};
use llm_client::{Auth, Client, Options, Secret};

use crate::world::{answer, asks, server, text};

/// Providers whose paths, key headers or token exchange the server does not know.
const UNKNOWN_THERE: [&str; 4] =
    ["cloudflare-ai-gateway", "deepinfra", "gitlab", "google-vertex-anthropic"];

#[tokio::test]
async fn every_provider_is_answered_at_its_own_path_with_its_own_header() {
    let served = server().await;
    let client = Client::new(Options::default()).unwrap();
    let auth = Auth::Key(Secret::new("key-of-tests"));
    let env = |name: &str| Some(format!("my-{}", name.to_lowercase().replace('_', "-")));
    let mut answered = BTreeSet::new();
    let all = providers::ALL.iter().copied().flatten();
    for provider in all.filter(|provider| !UNKNOWN_THERE.contains(&provider.id)) {
        for model in ["gpt-5.2", "some-model"] {
            let model = Model { id: model, ..Model::default() };
            let mut route = provider.route(&Setup::new(model, &env, &auth)).unwrap();
            route.endpoint.base_url = at(&served.url, provider, &route.endpoint.base_url);
            let events = answer(&client.on(route), &asks("say hello")).await;
            let events = events.unwrap_or_else(|error| panic!("{}: {error}", provider.id));
            assert_eq!(text(&events), "Hello from elsewhere, ä漢🦀.", "{}", provider.id);
        }
        answered.insert(provider.id);
    }
    assert!(answered.len() > 25, "{answered:?}");
}

/// Returns a provider's base URL with the server's host.
fn at(server: &str, provider: &Provider, base_url: &str) -> String {
    let (_, rest) = base_url.split_once("://").unwrap_or_else(|| panic!("{}", provider.id));
    let path = rest.find('/').map_or("", |at| &rest[at..]);
    format!("{server}{path}")
}
