//! Starts npm's `oidc-provider` once per test.

use serde_json::Value;

use self::npm::{Served, serve};

#[path = "../../../../tests/third-party/npm.rs"]
mod npm;

pub(crate) struct Server {
    pub(crate) url: String,
    http: reqwest::Client,
    _served: Served,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let served = serve("oidc-provider", "oidc-provider", "server.mjs").await;
        Self { url: served.url.clone(), http: reqwest::Client::new(), _served: served }
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let answer = self.http.get(format!("{}{path}", self.url)).send().await.expect("an answer");
        let text = answer.text().await.expect("a body");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
    }

    /// Returns how many refreshes the token endpoint has seen.
    pub(crate) async fn refreshes(&self) -> u64 {
        self.get("/asked").await["refresh_token"].as_u64().unwrap_or(0)
    }

    /// Returns the user of this access token, according to the server's API.
    pub(crate) async fn user_of(&self, token: &str) -> Option<String> {
        let asked = self.http.get(format!("{}/me", self.url)).bearer_auth(token).send().await;
        let text = asked.expect("an answer").text().await.expect("a body");
        let body: Value = serde_json::from_str(&text).expect("JSON");
        body["sub"].as_str().map(str::to_owned)
    }
}
