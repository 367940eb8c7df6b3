use std::collections::BTreeMap;

use llm_protocol::{Dialect, Generation, LlmRequest, Protocol, ToolChoice, ToolDefinition};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::RebuildError;

/// The model that a turn resolved to, as much of it as shapes the request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelEntry {
    /// The provider's id.
    pub provider: String,
    /// The provider's own name for the model.
    pub id: String,
    /// How it is spoken to.
    pub protocol: Protocol,
    /// The most tokens that fit into a request and its answer, when known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_limit: Option<u64>,
    /// The most tokens of a request, when its provider allows fewer than the context has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_limit: Option<u64>,
    /// The most tokens of an answer, when known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_limit: Option<u64>,
    /// What its provider does otherwise than the protocol says.
    #[serde(default, skip_serializing_if = "Dialect::is_default")]
    pub dialect: Dialect,
}

impl ModelEntry {
    /// The body of a request to it, which is left as it was. The conversation is what the models said, in the order in which
    /// they did; a provider that would refuse that order is told another ([`Protocol::in_order`]). Not the conversation
    /// itself: it would be another one for the provider that took it so. None: this build does not have the wire version.
    pub(crate) fn encode(&self, version: u32, request: &mut LlmRequest) -> Option<Vec<u8>> {
        let mut said = Vec::new();
        for (at, message) in request.messages.iter_mut().enumerate() {
            if let Some(parts) = self.protocol.in_order(&self.id, &self.dialect, message) {
                said.push((at, std::mem::replace(&mut message.content, parts)));
            }
        }
        let body = self.protocol.encode_version(version, request, &self.dialect);
        for (at, parts) in said {
            request.messages[at].content = parts;
        }
        body
    }
}

/// All that a request is made of besides history and the Baseline System Context. Stored by content, so
/// that a thousand turns with the same tools store them once.
#[derive(Debug, Clone, PartialEq)]
pub struct Components {
    /// The agent's own instructions.
    pub agent: String,
    /// The tools offered, in order.
    pub tools: Vec<ToolDefinition>,
    /// Whether a tool may or must be called.
    pub tool_choice: ToolChoice,
    /// Generation Controls.
    pub generation: Generation,
    /// Model Request Options, by protocol.
    pub options: Map<String, Value>,
    /// The resolved model.
    pub model: ModelEntry,
}

const AGENT: &str = "agent";
const TOOLS: &str = "tools";
const TOOL_CHOICE: &str = "tool-choice";
const GENERATION: &str = "generation";
const OPTIONS: &str = "options";
const MODEL: &str = "model";

impl Components {
    /// Each component's bytes, by name.
    #[must_use]
    pub fn bytes(&self) -> BTreeMap<String, Vec<u8>> {
        let json = |value: serde_json::Result<Vec<u8>>| {
            value.expect("components are strings, numbers and lists of them")
        };
        BTreeMap::from([
            (AGENT.to_owned(), self.agent.clone().into_bytes()),
            (TOOLS.to_owned(), json(serde_json::to_vec(&self.tools))),
            (TOOL_CHOICE.to_owned(), json(serde_json::to_vec(&self.tool_choice))),
            (GENERATION.to_owned(), json(serde_json::to_vec(&self.generation))),
            (OPTIONS.to_owned(), json(serde_json::to_vec(&self.options))),
            (MODEL.to_owned(), json(serde_json::to_vec(&self.model))),
        ])
    }

    /// Reads components back from their bytes.
    ///
    /// # Errors
    /// [`RebuildError::Component`] when one is missing or cannot be read.
    pub fn read(bytes: &BTreeMap<String, Vec<u8>>) -> Result<Self, RebuildError> {
        Ok(Self {
            agent: String::from_utf8(raw(bytes, AGENT)?.to_vec())
                .map_err(|error| unreadable(AGENT, &error))?,
            tools: json(bytes, TOOLS)?,
            tool_choice: json(bytes, TOOL_CHOICE)?,
            generation: json(bytes, GENERATION)?,
            options: json(bytes, OPTIONS)?,
            model: json(bytes, MODEL)?,
        })
    }
}

fn raw<'a>(bytes: &'a BTreeMap<String, Vec<u8>>, name: &str) -> Result<&'a [u8], RebuildError> {
    bytes.get(name).map(Vec::as_slice).ok_or_else(|| RebuildError::Component {
        name: name.to_owned(),
        reason: "it is not stored".to_owned(),
    })
}

fn json<T: serde::de::DeserializeOwned>(
    bytes: &BTreeMap<String, Vec<u8>>,
    name: &str,
) -> Result<T, RebuildError> {
    serde_json::from_slice(raw(bytes, name)?).map_err(|error| unreadable(name, &error))
}

fn unreadable(name: &str, error: &dyn std::error::Error) -> RebuildError {
    RebuildError::Component { name: name.to_owned(), reason: error.to_string() }
}

/// SHA-256 as hex: how bodies and components are named.
#[must_use]
pub fn hash_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
