//! Turns a request's options into body fields, in layers. A later layer wins.
//!
//! `Dialect.body` < the families' namespaces, in the AI SDK's names < the namespace of the protocol's id,
//! whose members are body fields. No layer replaces the fixed fields (model, conversation, tools).
//! `Dialect.omit` comes last.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::dialect::Dialect;
use crate::json::Sorted;
use crate::request::LlmRequest;

/// The options that a protocol reads, and the fields that they become.
pub(crate) struct OptionTable {
    /// The protocol's id: the namespace of raw fields.
    pub(crate) id: &'static str,
    /// The namespaces that use the AI SDK's names. The namespace of the dialect's state key is read after
    /// them.
    pub(crate) families: &'static [&'static str],
    /// Pairs of an AI SDK name and its field, `a` or `a.b`. The name's snake_case is accepted too; other
    /// names are dropped.
    pub(crate) names: &'static [(&'static str, &'static str)],
    /// Fields whose objects are merged, one level deep, instead of replaced.
    pub(crate) merged: &'static [&'static str],
    /// Fields that no option replaces, such as the model, the conversation and the tools.
    pub(crate) fixed: &'static [&'static str],
}

/// A tool in a body.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Offered<'a, T> {
    /// One that we run.
    Ours(T),
    /// A tool that the provider runs, as the options define it.
    Hosted(Sorted<'a>),
}

/// Body fields by name. A null field is not sent.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct BodyFields(BTreeMap<String, Value>);

impl OptionTable {
    /// Returns the fields that the request's options and the dialect add to the body.
    pub(crate) fn fields(&self, request: &LlmRequest, dialect: &Dialect) -> BodyFields {
        let mut fields = BodyFields::default();
        for (key, value) in &dialect.body {
            self.put(&mut fields, key, value);
        }
        let own = dialect.state_key.as_deref().filter(|key| !self.families.contains(key));
        for family in self.families.iter().copied().chain(own).filter(|name| *name != self.id) {
            for (name, value) in namespace(request, family).into_iter().flatten() {
                self.put_named(&mut fields, name, value);
            }
        }
        for (key, value) in namespace(request, self.id).into_iter().flatten() {
            self.put(&mut fields, key, value);
        }
        fields
    }

    /// Returns `ours` and then the tools that the provider runs, verbatim from the request's options for this
    /// protocol.
    pub(crate) fn offer<'a, T>(
        &self,
        request: &'a LlmRequest,
        ours: impl IntoIterator<Item = T>,
    ) -> Vec<Offered<'a, T>> {
        let hosted = namespace(request, self.id).and_then(|options| options.get("tools"));
        let hosted = hosted.and_then(Value::as_array).into_iter().flatten();
        let hosted = hosted.map(|tool| Offered::Hosted(Sorted(tool)));
        ours.into_iter().map(Offered::Ours).chain(hosted).collect()
    }

    fn put_named(&self, fields: &mut BodyFields, name: &str, value: &Value) {
        let name = camel_case(name);
        let Some((_, place)) = self.names.iter().find(|(known, _)| *known == name) else { return };
        match place.split_once('.') {
            _ if value.is_null() => {}
            None => self.put(fields, place, value),
            Some((object, member)) => {
                let member = Map::from_iter([(member.to_owned(), value.clone())]);
                self.put(fields, object, &Value::Object(member));
            }
        }
    }

    fn put(&self, fields: &mut BodyFields, key: &str, value: &Value) {
        if self.fixed.contains(&key) {
            return;
        }
        match (fields.0.get_mut(key), value) {
            (Some(Value::Object(under)), Value::Object(over)) if self.merged.contains(&key) => {
                for (member, value) in over {
                    if value.is_null() {
                        under.remove(member);
                    } else {
                        under.insert(member.clone(), value.clone());
                    }
                }
            }
            _ => {
                fields.0.insert(key.to_owned(), value.clone());
            }
        }
    }
}

fn namespace<'a>(request: &'a LlmRequest, name: &str) -> Option<&'a Map<String, Value>> {
    request.provider_options.get(name).and_then(Value::as_object)
}

/// Converts `reasoning_effort` to the AI SDK's `reasoningEffort`.
fn camel_case(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut upper = false;
    for letter in name.chars() {
        if letter == '_' {
            upper = !camel.is_empty();
        } else if std::mem::take(&mut upper) {
            camel.extend(letter.to_uppercase());
        } else {
            camel.push(letter);
        }
    }
    camel
}

impl BodyFields {
    /// Returns the field's value; null if the field must not be sent.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// Removes and returns the field.
    pub(crate) fn take(&mut self, key: &str) -> Option<Value> {
        self.0.remove(key)
    }

    /// Sets the field, in place of the options' value.
    pub(crate) fn set(&mut self, key: &str, value: Value) {
        self.0.insert(key.to_owned(), value);
    }

    /// Returns the fields that are sent, sorted by name.
    pub(crate) fn sent(&self) -> impl Iterator<Item = (&str, &Value)> {
        let sent = self.0.iter().filter(|(_, value)| !value.is_null());
        sent.map(|(key, value)| (key.as_str(), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TABLE: OptionTable = OptionTable {
        id: "openai-responses",
        families: &["openai"],
        names: &[("reasoningEffort", "reasoning.effort"), ("store", "store")],
        merged: &["reasoning"],
        fixed: &["model"],
    };

    fn fields(body: Value, options: Value, state_key: Option<&str>) -> Value {
        let mut request = LlmRequest::new("m", vec![]);
        request.provider_options = serde_json::from_value(options).unwrap();
        let dialect = Dialect {
            body: serde_json::from_value(body).unwrap(),
            state_key: state_key.map(str::to_owned),
            ..Dialect::default()
        };
        serde_json::to_value(TABLE.fields(&request, &dialect).0).unwrap()
    }

    #[test]
    fn later_layers_win_and_named_objects_are_merged() {
        assert_eq!(
            fields(
                json!({"store": true, "extra": 1, "model": "no"}),
                json!({
                    "openai": {"reasoning_effort": "low", "store": false, "unknown": 1},
                    "xai": {"reasoningEffort": "high"},
                    "openai-responses": {"reasoning": {"summary": "auto"}, "extra": null},
                    "gemini": {"store": 7},
                }),
                Some("xai"),
            ),
            json!({"store": false, "extra": null, "reasoning": {"effort": "high", "summary": "auto"}})
        );
    }

    #[test]
    fn a_member_that_is_null_is_taken_out_and_null_in_a_family_says_nothing() {
        let options = json!({
            "openai": {"reasoningEffort": "low", "store": null},
            "openai-responses": {"reasoning": {"effort": null, "summary": "auto"}},
        });
        assert_eq!(
            fields(json!({"store": true}), options, None),
            json!({"store": true, "reasoning": {"summary": "auto"}})
        );
    }
}
