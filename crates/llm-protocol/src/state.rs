//! Provider state: data that a provider wants back (signatures, encrypted reasoning, ids of items).
//!
//! It is stored as `{"<key>": {"model": "<model>", …}}` in `providerMetadata`, and goes back only to the
//! provider and model that sent it. For any other model, reasoning becomes plain text and the rest is
//! dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::RawJson;

/// The provider and model that own a piece of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateOwner {
    key: Arc<str>,
    model: Arc<str>,
}

/// The member that names the model.
const MODEL: &str = "model";

impl StateOwner {
    /// Makes an owner from the provider's key (see [`crate::Dialect::state_key`]) and its own name for the
    /// model.
    #[must_use]
    pub fn new(key: &str, model: &str) -> Self {
        Self { key: key.into(), model: model.into() }
    }

    /// The provider's key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The provider's own name for the model.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Writes state with these members, in their order. No members give no state.
    #[must_use]
    pub fn write<V: Serialize + ?Sized>(&self, members: &[(&str, &V)]) -> Option<RawJson> {
        if members.is_empty() {
            return None;
        }
        let state = Written { owner: self, members };
        Some(RawJson::written(&state).expect("its keys are strings and its values are JSON"))
    }

    /// Reads the state in `metadata` if it belongs to this owner. State without a model belongs to every
    /// model of its key.
    #[must_use]
    pub fn read<T: DeserializeOwned>(&self, metadata: Option<&RawJson>) -> Option<T> {
        let owners: BTreeMap<String, &RawValue> = serde_json::from_str(metadata?.get()).ok()?;
        let state = owners.get(&*self.key)?.get();
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(state).ok()?;
        let model = members.get(MODEL).map(|model| serde_json::from_str::<String>(model.get()));
        match model {
            None => serde_json::from_str(state).ok(),
            Some(Ok(model)) if *model == *self.model => serde_json::from_str(state).ok(),
            Some(_) => None,
        }
    }
}

/// `{"<key>":{"model":"<model>",…}}`
struct Written<'a, V: ?Sized> {
    owner: &'a StateOwner,
    members: &'a [(&'a str, &'a V)],
}

struct Members<'a, V: ?Sized>(&'a Written<'a, V>);

impl<V: Serialize + ?Sized> Serialize for Written<'_, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(&*self.owner.key, &Members(self))?;
        map.end()
    }
}

impl<V: Serialize + ?Sized> Serialize for Members<'_, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Written { owner, members } = self.0;
        let mut map = serializer.serialize_map(Some(members.len() + 1))?;
        map.serialize_entry(MODEL, &*owner.model)?;
        for (name, value) in *members {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize, PartialEq, Eq)]
    struct Signed {
        signature: String,
    }

    #[test]
    fn state_goes_back_to_whoever_sent_it_and_to_nobody_else() {
        let owner = StateOwner::new("anthropic", "claude-\"1\"");
        let signature = RawJson::parse(r#""s\u0041""#).unwrap();
        let state = owner.write(&[("signature", &signature)]).unwrap();
        assert_eq!(state.get(), r#"{"anthropic":{"model":"claude-\"1\"","signature":"s\u0041"}}"#);
        let signed = Some(Signed { signature: "sA".into() });
        assert_eq!(owner.read::<Signed>(Some(&state)), signed);
        assert_eq!(StateOwner::new("anthropic", "other").read::<Signed>(Some(&state)), None);
        assert_eq!(StateOwner::new("bedrock", "claude-\"1\"").read::<Signed>(Some(&state)), None);
        assert_eq!(owner.read::<Signed>(None), None);
        assert_eq!(owner.write::<RawJson>(&[]), None);
        let anyone = RawJson::parse(r#"{"anthropic":{"signature":"sA"}}"#).unwrap();
        assert_eq!(owner.read::<Signed>(Some(&anyone)), signed);
    }
}
