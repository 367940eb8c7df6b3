//! Writes the body of a request as one JSON object, member by member.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer as _};
use serde_json::{Serializer, Value};

use crate::dialect::Dialect;
use crate::json::Sorted;
use crate::options::BodyFields;
use crate::request::LlmRequest;
use crate::state::StateOwner;

/// The input of a body: the request, the deployment's dialect, and the owner whose state goes back.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) request: &'a LlmRequest,
    pub(crate) dialect: &'a Dialect,
    pub(crate) owner: &'a StateOwner,
    /// The wire version of the bytes to write.
    pub(crate) version: u32,
}

/// A function that writes the members of a body.
pub(crate) type Write = fn(Source<'_>, &mut Body<'_>) -> serde_json::Result<()>;

type Members<'a> = <&'a mut Serializer<&'a mut Vec<u8>> as serde::Serializer>::SerializeMap;

/// A body while it is written. Skips the members that the dialect omits.
pub(crate) struct Body<'a> {
    members: Members<'a>,
    omit: &'a [String],
}

/// Returns the bytes of a body. The same source gives the same bytes in any build.
pub(crate) fn written(write: Write, source: Source<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_into(&mut bytes, write, source).expect("keys are strings and the writer is memory");
    bytes
}

fn write_into(bytes: &mut Vec<u8>, write: Write, source: Source<'_>) -> serde_json::Result<()> {
    let mut serializer = Serializer::new(bytes);
    let members = serializer.serialize_map(None)?;
    let mut body = Body { members, omit: &source.dialect.omit };
    write(source, &mut body)?;
    body.members.end()
}

impl Body<'_> {
    pub(crate) fn entry(
        &mut self,
        key: &str,
        value: &(impl Serialize + ?Sized),
    ) -> serde_json::Result<()> {
        if self.omit.iter().any(|omitted| omitted == key) {
            return Ok(());
        }
        self.members.serialize_entry(key, value)
    }

    /// Writes the generation controls that no option replaces, in order, and then the options, sorted.
    pub(crate) fn tail(
        &mut self,
        controls: &[(&str, Value)],
        fields: &BodyFields,
    ) -> serde_json::Result<()> {
        for (key, value) in controls.iter().filter(|(key, _)| fields.get(key).is_none()) {
            self.entry(key, value)?;
        }
        for (key, value) in fields.sent() {
            self.entry(key, &Sorted(value))?;
        }
        Ok(())
    }
}
