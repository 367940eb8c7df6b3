//! A pack that takes only what no committed pack has.

use bytes::Bytes;

use crate::error::SnapshotError;
use crate::object::ObjectId;
use crate::objects::Objects;
use crate::pack::PackWriter;
use crate::scan::Keep;

/// Adds contents to a pack, but for those that a committed pack has.
pub(crate) struct KeepInPack<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) pack: &'a mut PackWriter,
}

impl Keep for KeepInPack<'_> {
    fn has(&self, id: ObjectId) -> bool {
        self.objects.is_kept(id) || self.pack.has(id)
    }

    fn keep(&mut self, id: ObjectId, bytes: Bytes) -> Result<(), SnapshotError> {
        if self.has(id) {
            return Ok(());
        }
        self.objects.remember(id, &bytes);
        self.pack.add(id, &bytes)
    }
}
