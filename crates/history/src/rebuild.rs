use std::collections::BTreeMap;

use domain::{RecordedEvent, TurnId};

use crate::{Components, History};

/// The reason why a request cannot be rebuilt. A wrong body is not among them: the caller also compares the hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RebuildError {
    /// The encoder of a later build made the body.
    #[error(
        "encoder changed: the request was made by wire version {stored}, this build has those up to {ours}"
    )]
    EncoderChanged {
        /// The body's wire version.
        stored: i32,
        /// The newest wire version of this build.
        ours: u32,
    },
    /// A component is missing or damaged.
    #[error("the request's component `{name}` cannot be read: {reason}")]
    Component {
        /// Its name.
        name: String,
        /// The reason.
        reason: String,
    },
}

/// Rebuilds the body of an attempt of `turn` from rows: the events up to its `through`, and its components.
///
/// # Errors
/// [`RebuildError`]. A returned body has the attempt's hash unless somebody changed the rows.
pub fn rebuild_body(
    events: &[RecordedEvent],
    components: &BTreeMap<String, Vec<u8>>,
    wire_version: i32,
    turn: &TurnId,
) -> Result<Vec<u8>, RebuildError> {
    let components = Components::read(components)?;
    let ours = components.model.protocol.wire_version();
    let unknown = RebuildError::EncoderChanged { stored: wire_version, ours };
    let mut history = History::new();
    history.extend(events);
    let version = u32::try_from(wire_version).ok();
    let body = version.and_then(|version| history.encode_version(version, &components, turn));
    body.ok_or(unknown)
}
