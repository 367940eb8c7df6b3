//! The form in which a session goes to another service: lines of JSON (docs/decisions/0054-export-and-import.md).
//!
//! ```text
//! header │ component … │ output … │ object … │ event 1, event 2, … │ end (lines, SHA-256 of all before)
//!           └ a content longer than a line continues in `more` lines
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use domain::{EventId, SessionId, SnapshotTree, TimestampMs};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The name of the form, which the first line has.
pub(super) const FORMAT: &str = "opencode-cloud-session";
/// Its version. A reader knows this one alone.
pub(super) const VERSION: u32 = 1;
/// The longest line, in bytes. An event with all patches of a large change fits.
pub(super) const MAX_LINE: usize = 32 * 1024 * 1024;
/// The most bytes of content in one line, before base64.
pub(super) const PIECE: usize = 1024 * 1024;
/// The longest log, in events and in bytes of their lines.
pub(super) const MAX_EVENTS: i64 = 100_000;
pub(super) const MAX_LOG_BYTES: u64 = 256 * 1024 * 1024;
/// The most bytes of all components.
pub(super) const MAX_COMPONENT_BYTES: u64 = 64 * 1024 * 1024;
/// The largest content, in bytes: a file below `.git`.
pub(super) const MAX_CONTENT: u64 = 64 * 1024 * 1024;
/// The most bytes of an export.
pub(super) const MAX_BYTES: u64 = 8 * 1024 * 1024 * 1024;
/// The path below which results of tools name their complete text.
pub(super) const OUTPUTS: &str = "/tool-output/";

/// The kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LineKind {
    Header,
    Component,
    Output,
    Object,
    More,
    Event,
    End,
}

/// The fields of every line. The rest depends on the kind.
#[derive(Debug, Deserialize)]
pub(super) struct AnyLine {
    #[serde(rename = "type")]
    pub(super) kind: LineKind,
}

/// The fields of the first line in every version.
#[derive(Debug, Deserialize)]
pub(super) struct AnyHeader {
    pub(super) format: String,
    pub(super) version: u32,
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    #[serde(rename = "type")]
    pub(super) kind: LineKind,
    pub(super) format: String,
    pub(super) version: u32,
    pub(super) session: SessionId,
    /// For people who look into the file.
    pub(super) title: String,
    /// The time of the export.
    pub(super) exported: TimestampMs,
    /// The number of events.
    pub(super) events: i64,
    /// The session's newest files; `None` if they were never captured.
    pub(super) files: Option<SnapshotTree>,
}

/// Whether an object is a directory's list of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ObjectWord {
    Tree,
    File,
}

/// A component by its SHA-256, a tool's complete output by its name, or an object of a snapshot by its SHA-256.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ContentLine {
    #[serde(rename = "type")]
    pub(super) kind: LineKind,
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) object: Option<ObjectWord>,
    /// Its bytes. `more` lines follow until all are there.
    pub(super) size: u64,
    /// In base64.
    pub(super) data: String,
}

/// The next piece of the content before.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MoreLine {
    #[serde(rename = "type")]
    pub(super) kind: LineKind,
    pub(super) data: String,
}

/// An event of the log.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventLine {
    #[serde(rename = "type")]
    pub(super) kind: LineKind,
    pub(super) seq: i64,
    pub(super) id: EventId,
    pub(super) time: TimestampMs,
    /// Its kind, such as `turn.replied`, and the version of its payload.
    pub(super) event: String,
    pub(super) version: i32,
    pub(super) data: Box<RawValue>,
}

/// The last line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndLine {
    #[serde(rename = "type")]
    pub(super) kind: LineKind,
    /// The number of lines before.
    pub(super) lines: u64,
    /// The SHA-256 of their bytes, in hex.
    pub(super) sha256: String,
}

pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes base64; `None` if it is none.
pub(super) fn unbase64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}
