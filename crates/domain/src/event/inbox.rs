use serde::{Deserialize, Serialize};

use crate::{
    Delivery, LocationId, MessageId, ModelRef, ProjectId, PromptPart, SessionError, TimestampMs,
};

use super::is_false;

/// Payload of `prompt.admitted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptAdmitted {
    /// The message that it becomes.
    pub message: MessageId,
    /// How it joins running work.
    pub delivery: Delivery,
    /// What the user sent.
    pub parts: Vec<PromptPart>,
    /// The agent chosen with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The model chosen with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Whether it woke the session, or was only stored (`resume: false`).
    pub wake: bool,
    /// SHA-256 (hex) of what the client sent: tells an exact retry from another prompt.
    pub digest: String,
    /// Set when no user wrote it: what it is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthetic: Option<String>,
}

/// Payload of `prompt.promoted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptPromoted {
    /// The prompt.
    pub message: MessageId,
    /// Its content, repeated so that history needs no look-up.
    pub parts: Vec<PromptPart>,
    /// The agent of the turns that answer it.
    pub agent: String,
    /// The model of the turns that answer it.
    pub model: ModelRef,
    /// When it was admitted.
    pub admitted: TimestampMs,
    /// Set when no user wrote it: what it is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthetic: Option<String>,
}

/// What an inbox item asks for that is no prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Control {
    /// A Compaction at this place in the inbox.
    Compaction,
    /// To go on at another Location.
    Move {
        /// The project that the Location belongs to.
        project: ProjectId,
        /// Where to.
        location: LocationId,
        /// The Location's directory, as the model is shown it.
        directory: String,
        /// Whether the Location, a new one, begins with the files of this one.
        #[serde(default, skip_serializing_if = "is_false")]
        carry: bool,
    },
    /// To go back to before a message.
    Revert {
        /// The first message that goes: a prompt or an answer.
        message: MessageId,
        /// Whether files go back too.
        #[serde(default, skip_serializing_if = "is_false")]
        files: bool,
    },
    /// To undo a Revert that is not committed.
    Unrevert,
}

/// Payload of `control.admitted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlAdmitted {
    /// The item's id.
    pub message: MessageId,
    /// How it joins running work.
    pub delivery: Delivery,
    /// What is asked for.
    pub control: Control,
    /// Whether it woke the session.
    pub wake: bool,
    /// SHA-256 (hex) of what the client sent: tells an exact retry from another request.
    pub digest: String,
}

/// Payload of `control.delivered`: it has left the inbox and is acted on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlDelivered {
    /// The item.
    pub message: MessageId,
    /// Set when it could not be acted on, and nothing has changed: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<SessionError>,
}

/// Payload of `input.cancelled`: it has left the inbox and never becomes history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputCancelled {
    /// The item.
    pub message: MessageId,
}

/// Payload of `delivery.changed`. The order of admission stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryChanged {
    /// The item.
    pub message: MessageId,
    /// How it joins running work from now on.
    pub delivery: Delivery,
    /// Whether this woke the session.
    pub wake: bool,
}

/// Payload of `wake.requested`: what waits is to run, without new input.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeRequested {
    /// For what.
    #[serde(default, skip_serializing_if = "WakeScope::is_all")]
    pub scope: WakeScope,
}

/// What a wake is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WakeScope {
    /// Everything that waits.
    #[default]
    All,
    /// What steers, and a control before which no prompt is queued: other queued input stays parked.
    Steer,
}

impl WakeScope {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_all(&self) -> bool {
        *self == Self::All
    }
}
