use std::collections::BTreeMap;

use domain::{RecordedEvent, TurnId};

use crate::{Components, History};

/// Why a request cannot be rebuilt. Never a wrong body: the caller compares the hash besides.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RebuildError {
    /// The body was made by an encoder that this build does not have: a later build wrote it.
    #[error(
        "encoder changed: the request was made by wire version {stored}, this build has those up to {ours}"
    )]
    EncoderChanged {
        /// What made it.
        stored: i32,
        /// The newest that this build has.
        ours: u32,
    },
    /// A component is missing or damaged.
    #[error("the request's component `{name}` cannot be read: {reason}")]
    Component {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
}

/// Rebuilds the body of an attempt of `turn` from rows: the events up to its `through`, and its components.
///
/// # Errors
/// [`RebuildError`]; a body that is returned has the attempt's hash unless rows were tampered with.
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
