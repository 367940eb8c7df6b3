//! Hides secrets in providers' settings: values of headers, and keys among options. Nobody can read them. A client
//! may write back settings that it has read: the hidden values are then restored.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The placeholder for a hidden value.
const REDACTED: &str = "[redacted]";
/// Names of options that hold keys, in lower case.
const KEYS: [&str; 5] = ["apikey", "api_key", "authtoken", "auth_token", "accesstoken"];

/// Hides the values of headers and keys, at any depth.
pub(crate) fn hide(settings: &mut Map<String, Value>) {
    walk(settings, &mut |value, _| *value = REDACTED.into(), &Map::new());
}

/// Returns the headers with their values hidden.
pub(crate) fn hidden(headers: &BTreeMap<String, String>) -> BTreeMap<String, &'static str> {
    headers.keys().map(|name| (name.clone(), REDACTED)).collect()
}

/// Restores values that [`hide`] has hidden from `before`. A placeholder without a known value becomes null.
pub(crate) fn restore(settings: &mut Map<String, Value>, before: &Map<String, Value>) {
    let mut put_back = |value: &mut Value, known: Option<&Value>| {
        if value == REDACTED {
            *value = known.cloned().unwrap_or(Value::Null);
        }
    };
    walk(settings, &mut put_back, before);
}

fn walk(
    settings: &mut Map<String, Value>,
    change: &mut impl FnMut(&mut Value, Option<&Value>),
    before: &Map<String, Value>,
) {
    for (name, value) in settings {
        let known = before.get(name);
        match value {
            Value::Object(headers) if name.eq_ignore_ascii_case("headers") => {
                for (header, value) in headers.iter_mut() {
                    change(value, known.and_then(|known| known.get(header)));
                }
            }
            Value::Object(members) => {
                let none = Map::new();
                walk(members, change, known.and_then(Value::as_object).unwrap_or(&none));
            }
            Value::String(_) if KEYS.contains(&name.to_ascii_lowercase().as_str()) => {
                change(value, known);
            }
            Value::String(_)
            | Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    // Finding security 17: anybody who could read saw keys in headers.
    #[test]
    fn headers_and_keys_are_hidden_and_put_back() {
        let settings = map(&json!({
            "api": "https://llm.example",
            "headers": { "x-api-key": "secret-1" },
            "options": { "apiKey": "secret-2", "temperature": 1 },
            "models": { "m": { "headers": { "authorization": "secret-3" }, "name": "M" } },
        }));
        let mut shown = settings.clone();
        hide(&mut shown);
        let text = Value::from(shown.clone()).to_string();
        assert!(!text.contains("secret-") && text.contains("x-api-key"), "{text}");
        let mut written = shown.clone();
        restore(&mut written, &settings);
        assert_eq!(written, settings);
        shown["headers"]["x-api-key"] = json!("secret-4");
        restore(&mut shown, &settings);
        assert_eq!(shown["headers"]["x-api-key"], "secret-4");
        assert_eq!(shown["options"]["apiKey"], "secret-2");
    }
}
