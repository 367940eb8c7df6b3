//! Tools that Bedrock runs itself (system tools, such as `nova_grounding`). Their blocks are sent back
//! verbatim.
//! <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolResultBlockStart.html>

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::bedrock_converse::frame::ToolResultStart;
use crate::json::RawJson;
use crate::message::{ToolContent, ToolResult};
use crate::state::StateOwner;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallBlock<'a> {
    tool_use_id: &'a str,
    name: &'a str,
    input: &'a RawJson,
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResultBlock<'a> {
    tool_use_id: &'a str,
    content: &'a [Box<RawValue>],
    #[serde(skip_serializing_if = "Option::is_none")]
    status: &'a Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: &'a Option<String>,
}

/// Returns a block of one member, as JSON.
fn block(member: &str, value: &impl Serialize) -> RawJson {
    let value = serde_json::to_string(value).expect("its keys are strings");
    RawJson::parse(format!("{{\"{member}\":{value}}}")).expect("written from JSON")
}

/// Returns the block of a call that Bedrock ran.
pub(super) fn call_block(id: &str, name: &str, input: &RawJson) -> RawJson {
    block("toolUse", &CallBlock { tool_use_id: id, name, input, kind: "server_tool_use" })
}

/// A result while Bedrock still writes it.
#[derive(Debug)]
pub(super) struct HostedResult {
    /// None once it is complete.
    index: Option<u64>,
    id: String,
    kind: Option<String>,
    status: Option<String>,
    content: Vec<Box<RawValue>>,
}

/// A piece of a result, reduced to the text that other providers can read.
#[derive(Deserialize)]
struct Piece {
    text: Option<String>,
}

impl HostedResult {
    pub(super) fn new(index: u64, start: ToolResultStart<'_>) -> Self {
        Self {
            index: Some(index),
            id: start.tool_use_id.map(|id| id.into_string()).unwrap_or_default(),
            kind: start.kind.map(|kind| kind.into_string()),
            status: start.status.map(|status| status.into_string()),
            content: Vec::new(),
        }
    }

    pub(super) fn open_index(&self) -> Option<u64> {
        self.index
    }

    pub(super) fn is_open(&self, index: u64) -> bool {
        self.index == Some(index)
    }

    pub(super) fn answers(&self, call: &str) -> bool {
        self.id == call
    }

    pub(super) fn extend(&mut self, pieces: &[&RawValue]) {
        self.content.extend(pieces.iter().map(|piece| (*piece).to_owned()));
    }

    pub(super) fn close(&mut self, name: &str, owner: &StateOwner) -> ToolResult {
        self.index = None;
        let text = |piece: &RawValue| {
            let read = serde_json::from_str::<Piece>(piece.get()).ok();
            read.and_then(|piece| piece.text).unwrap_or_else(|| piece.get().to_owned())
        };
        let content = self.content.iter().map(|piece| ToolContent::Text { text: text(piece) });
        let exact = ResultBlock {
            tool_use_id: &self.id,
            content: &self.content,
            status: &self.status,
            kind: &self.kind,
        };
        ToolResult {
            id: self.id.clone(),
            name: name.to_owned(),
            content: content.collect(),
            is_error: self.status.as_deref() == Some("error"),
            provider_metadata: owner.write(&[("block", &block("toolResult", &exact))]),
        }
    }
}
