//! The identity provider of `oidc-provider/idp.mjs`. Tests of several crates include this source file, beside `npm.rs`.

use reqwest::{Client, Url};
use serde_json::{Value, json};

use crate::npm::{Served, serve};

pub(crate) struct Idp {
    pub(crate) url: String,
    http: Client,
    _served: Served,
}

impl Idp {
    pub(crate) async fn start() -> Self {
        let served = serve("oidc-provider", "oidc-provider", "idp.mjs").await;
        Self { url: served.url.clone(), http: Client::new(), _served: served }
    }

    /// Changes its behaviour; returns the number of requests by path.
    pub(crate) async fn control(&self, change: Value) -> Value {
        let url = format!("{}/control", self.url);
        let answer = self.http.post(url).body(change.to_string()).send().await.expect("an answer");
        serde_json::from_str(&answer.text().await.expect("a body")).expect("JSON")
    }

    /// Registers a client with this callback; returns its id and secret.
    pub(crate) async fn register(
        &self,
        redirect: &str,
        algorithm: &str,
        auth: &str,
    ) -> (String, Option<String>) {
        let origin = Url::parse(redirect).expect("an address").origin().ascii_serialization();
        let client = json!({
            "redirect_uris": [redirect], "id_token_signed_response_alg": algorithm,
            "token_endpoint_auth_method": auth, "post_logout_redirect_uris": [format!("{origin}/login")],
        });
        let request = self.http.post(format!("{}/reg", self.url));
        let request = request.header("content-type", "application/json").body(client.to_string());
        let answer = request.send().await.expect("an answer").text().await.expect("a body");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let text = |name: &str| answer[name].as_str().map(str::to_owned);
        (text("client_id").unwrap_or_else(|| panic!("{answer}")), text("client_secret"))
    }
}
