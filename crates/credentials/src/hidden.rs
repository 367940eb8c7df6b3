//! The values in provider settings that may be secrets: values of headers, and keys among options. A text
//! that people or the database can see has a placeholder in their place.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The placeholder for a hidden value.
pub const HIDDEN: &str = "[redacted]";

/// Hidden values by their JSON pointers.
pub(crate) type HiddenValues = BTreeMap<String, Value>;

/// Replaces the values of headers and keys by [`HIDDEN`], at any depth.
pub fn hide(settings: &mut Map<String, Value>) {
    take(settings);
}

/// Like [`hide`], and returns the values. One that was hidden already is returned as [`HIDDEN`].
pub(crate) fn take(settings: &mut Map<String, Value>) -> HiddenValues {
    let mut taken = HiddenValues::new();
    walk(settings, "", &mut |at, value| {
        taken.insert(at.to_owned(), std::mem::replace(value, HIDDEN.into()));
    });
    taken
}

/// Puts values back into the places that they were taken from. `false`: the places are others, so one of
/// the two was changed.
pub(crate) fn put_back(settings: &mut Map<String, Value>, values: &HiddenValues) -> bool {
    let mut places = 0;
    walk(settings, "", &mut |at, value| {
        if let Some(hidden) = values.get(at) {
            value.clone_from(hidden);
            places += 1;
        } else {
            places = usize::MAX / 2;
        }
    });
    places == values.len()
}

fn walk(settings: &mut Map<String, Value>, path: &str, change: &mut impl FnMut(&str, &mut Value)) {
    for (name, value) in settings {
        let at = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
        match value {
            Value::Object(headers) if name.eq_ignore_ascii_case("headers") => {
                for (header, value) in headers.iter_mut() {
                    change(
                        &format!("{at}/{}", header.replace('~', "~0").replace('/', "~1")),
                        value,
                    );
                }
            }
            Value::Object(members) => walk(members, &at, change),
            Value::String(_) if catalog::is_key_name(name) => change(&at, value),
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

    // Finding security 17: anybody who could read saw keys in headers.
    #[test]
    fn headers_and_keys_are_taken_and_put_back() {
        let settings = json!({
            "api": "https://llm.example",
            "headers": { "x-api-key": "secret-1", "a/b~c": "secret-5" },
            "options": { "apiKey": "secret-2", "temperature": 1 },
            "models": { "m": { "headers": { "authorization": "secret-3" }, "name": "M",
                "variants": { "v": { "Headers": { "x": "secret-4" } } } } },
        });
        let settings = settings.as_object().expect("an object");
        let mut shown = settings.clone();
        let values = take(&mut shown);
        let text = Value::from(shown.clone()).to_string();
        assert!(!text.contains("secret-") && text.contains("x-api-key"), "{text}");
        assert_eq!(values.len(), 5);
        assert_eq!(values["/models/m/headers/authorization"], "secret-3");
        assert!(Value::from(settings.clone()).pointer("/headers/a~1b~0c").is_some());
        let mut opened = shown.clone();
        assert!(put_back(&mut opened, &values));
        assert_eq!(opened, *settings);
        // A place or a value too many is a change by somebody else.
        let mut more = shown.clone();
        more["headers"]["x-other"] = json!(HIDDEN);
        assert!(!put_back(&mut more, &values));
        let mut fewer = shown.clone();
        fewer.remove("options");
        assert!(!put_back(&mut fewer, &values));
        let twice = take(&mut shown);
        assert!(twice.values().all(|value| value == HIDDEN));
    }
}
