//! The three domains of a request besides the conversation.

use std::collections::BTreeMap;

use llm_protocol::Generation;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The settings that a model, a variant or an organisation adds to requests, sorted into the three domains.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Domains {
    /// Model Request Options: options of the provider's own models, by namespace
    /// ([`llm_protocol::LlmRequest::provider_options`]).
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub request_options: Map<String, Value>,
    /// Generation Controls, which every provider has.
    pub generation: Generation,
    /// Compatibility body fields, sent unchanged at the top level of the body
    /// ([`llm_protocol::Dialect::body`]).
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub body: Map<String, Value>,
    /// Headers for the provider. No credentials.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

impl Domains {
    /// Lays `over` on top: its values win, and objects are merged member by member.
    pub fn lay(&mut self, over: &Self) {
        merge(&mut self.request_options, &over.request_options);
        merge(&mut self.body, &over.body);
        let headers = over.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
        self.headers.extend(headers);
        let (controls, over) = (&mut self.generation, &over.generation);
        controls.max_tokens = over.max_tokens.or(controls.max_tokens);
        controls.temperature = over.temperature.or(controls.temperature);
        controls.top_p = over.top_p.or(controls.top_p);
        controls.top_k = over.top_k.or(controls.top_k);
        controls.seed = over.seed.or(controls.seed);
        if !over.stop.is_empty() {
            controls.stop.clone_from(&over.stop);
        }
    }

    /// Adds members to a namespace of the request options.
    pub(crate) fn ask(&mut self, namespace: &str, options: Value) {
        let over = Map::from_iter([(namespace.to_owned(), options)]);
        merge(&mut self.request_options, &over);
    }
}

/// Returns whether an option of this name is a key for the provider.
#[must_use]
pub fn is_key_name(name: &str) -> bool {
    let keys = ["apikey", "api_key", "authtoken", "auth_token", "accesstoken", "access_token"];
    keys.iter().any(|key| name.eq_ignore_ascii_case(key))
}

/// Removes keys at any depth: a body is stored, and never has any.
pub(crate) fn drop_keys(options: &mut Map<String, Value>) {
    options.retain(|name, value| !(value.is_string() && is_key_name(name)));
    options.values_mut().filter_map(Value::as_object_mut).for_each(drop_keys);
}

/// Lays `over` on `below`; objects are merged member by member.
pub(crate) fn merge(below: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (name, value) in over {
        match (below.get_mut(name), value) {
            (Some(Value::Object(below)), Value::Object(over)) => merge(below, over),
            (Some(below), value) => *below = value.clone(),
            (None, value) => {
                below.insert(name.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_on_top_wins_and_the_rest_stays() {
        let mut domains: Domains = serde_json::from_value(json!({
            "requestOptions": { "openai": { "store": false, "thinking": { "a": 1, "b": 2 } } },
            "generation": { "temperature": 0.5, "seed": 7 },
            "body": { "x": 1 },
            "headers": { "h": "1", "i": "1" },
        }))
        .unwrap();
        let over: Domains = serde_json::from_value(json!({
            "requestOptions": { "openai": { "thinking": { "b": 3 } }, "xai": {} },
            "generation": { "temperature": 0.0, "stop": ["s"] },
            "body": { "x": null },
            "headers": { "h": "2" },
        }))
        .unwrap();
        domains.lay(&over);
        let expected = json!({
            "requestOptions": { "openai": { "store": false, "thinking": { "a": 1, "b": 3 } }, "xai": {} },
            "generation": { "temperature": 0.0, "stop": ["s"], "seed": 7 },
            "body": { "x": null },
            "headers": { "h": "2", "i": "1" },
        });
        assert_eq!(serde_json::to_value(&domains).unwrap(), expected);
    }
}
