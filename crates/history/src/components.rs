use std::collections::BTreeMap;

use llm_protocol::{Dialect, Generation, LlmRequest, Protocol, ToolChoice, ToolDefinition};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::RebuildError;

/// The part of a resolved model that shapes the request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelEntry {
    /// The provider's id.
    pub provider: String,
    /// The provider's name for the model.
    pub id: String,
    /// The protocol of its requests.
    pub protocol: Protocol,
    /// The most tokens of a request and its answer together, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_limit: Option<u64>,
    /// The most tokens of a request, if its provider allows fewer than the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_limit: Option<u64>,
    /// The most tokens of an answer, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_limit: Option<u64>,
    /// The provider's differences from the protocol.
    #[serde(default, skip_serializing_if = "Dialect::is_default")]
    pub dialect: Dialect,
}

impl ModelEntry {
    /// Returns the body of a request to this model, and leaves the request unchanged. A provider that would refuse
    /// the messages' own order of parts gets another one ([`Protocol::in_order`]). The conversation keeps its order,
    /// because another provider may accept it. Returns `None` if this build does not have the wire version.
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

/// The parts of a request besides history and the Baseline System Context. Stored by content, so that a thousand
/// turns with the same tools store them once.
#[derive(Debug, Clone, PartialEq)]
pub struct Components {
    /// The agent's own instructions.
    pub agent: String,
    /// The offered tools, in order.
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
/// The name of the component with the offered tools, a list of definitions as JSON.
pub const TOOLS: &str = "tools";
const TOOL_CHOICE: &str = "tool-choice";
const GENERATION: &str = "generation";
const OPTIONS: &str = "options";
const MODEL: &str = "model";

impl Components {
    /// Returns each component's bytes, by name.
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

    /// Reads components from their bytes.
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

/// Returns the SHA-256 as hex, which names bodies and components.
#[must_use]
pub fn hash_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
