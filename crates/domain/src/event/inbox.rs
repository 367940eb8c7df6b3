use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Author, Delivery, LocationId, MessageId, ModelRef, ProjectId, PromptPart, SessionError,
    TimestampMs, words,
};

use super::is_false;

/// Payload of `prompt.admitted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromptAdmitted {
    /// The id of its future message.
    pub message: MessageId,
    /// Its delivery.
    pub delivery: Delivery,
    /// The user's content.
    pub parts: Vec<PromptPart>,
    /// The agent chosen with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The model chosen with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Whether it woke the session, or was only stored (`resume: false`).
    pub wake: bool,
    /// SHA-256 (hex) of the client's request, which distinguishes an exact retry from another prompt.
    pub digest: String,
    /// A description for people, set when no user wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthetic: Option<String>,
    /// Its author; `None` before authors were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Author>,
}

/// Payload of `prompt.promoted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromptPromoted {
    /// The prompt.
    pub message: MessageId,
    /// Its content, repeated so that history needs no look-up.
    pub parts: Vec<PromptPart>,
    /// The agent of the turns that answer it.
    pub agent: String,
    /// The model of the turns that answer it.
    pub model: ModelRef,
    /// The time of its admission.
    pub admitted: TimestampMs,
    /// A description for people, set when no user wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthetic: Option<String>,
}

/// The action of an inbox item that is not a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Control {
    /// A Compaction at this place in the inbox.
    Compaction,
    /// A Move to another Location.
    Move {
        /// The project that the Location belongs to.
        project: ProjectId,
        /// The destination.
        location: LocationId,
        /// The Location's directory, as the model sees it.
        directory: String,
        /// Whether the Location, a new one, begins with this Location's files.
        #[serde(default, skip_serializing_if = "is_false")]
        carry: bool,
    },
    /// A Revert to before a message.
    Revert {
        /// The first message to take back: a prompt or an answer.
        message: MessageId,
        /// Whether files are restored too.
        #[serde(default, skip_serializing_if = "is_false")]
        files: bool,
    },
    /// The undoing of a Revert that is not committed.
    Unrevert,
}

/// Payload of `control.admitted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ControlAdmitted {
    /// The item's id.
    pub message: MessageId,
    /// Its delivery.
    pub delivery: Delivery,
    /// The action.
    pub control: Control,
    /// Whether it woke the session.
    pub wake: bool,
    /// SHA-256 (hex) of the client's request, which distinguishes an exact retry from another request.
    pub digest: String,
}

/// Payload of `control.delivered`: it has left the inbox, and its action begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ControlDelivered {
    /// The item.
    pub message: MessageId,
    /// The reason why its action was impossible and nothing has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<SessionError>,
}

/// Payload of `input.cancelled`: it has left the inbox and never becomes history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InputCancelled {
    /// The item.
    pub message: MessageId,
}

/// Payload of `delivery.changed`. The order of admission stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeliveryChanged {
    /// The item.
    pub message: MessageId,
    /// The new delivery.
    pub delivery: Delivery,
    /// Whether this woke the session.
    pub wake: bool,
}

/// Payload of `wake.requested`: waiting inputs must run without new input.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WakeRequested {
    /// The inputs to wake.
    #[serde(default, skip_serializing_if = "WakeScope::is_all")]
    pub scope: WakeScope,
}

words! {
    /// The inputs that a wake is for.
    #[derive(Default)]
    pub enum WakeScope {
        /// All waiting inputs.
        #[default]
        All = "all",
        /// Steering inputs, and a control without a queued prompt before it. Other queued input stays parked.
        Steer = "steer",
    }
}

impl WakeScope {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_all(&self) -> bool {
        *self == Self::All
    }
}
