//! The needs of a log besides itself: components of requests, complete outputs of tools, and the objects of snapshots.
//! Each is proved by its content; a name alone brings nothing.

use std::collections::{BTreeMap, BTreeSet};

use blobs::{BlobError, BlobKey, Blobs};
use bytes::Bytes;
use domain::{OrgId, SnapshotTree};
use sha2::{Digest, Sha256};
use snapshots::{Intake, IntakeError, Object, ObjectKind, SnapshotLimits};
use store::BlobUse;

use crate::act::transfer::{
    ContentLine, LineKind, MAX_COMPONENT_BYTES, MAX_CONTENT, MoreLine, ObjectWord, unbase64,
};
use crate::error::ApiError;
use crate::spools::SpoolRoom;
use crate::text::shown;

/// The contents that have come.
pub(super) struct Contents {
    org: OrgId,
    blobs: Option<Blobs>,
    /// For the pack.
    room: SpoolRoom,
    components: BTreeMap<String, Vec<u8>>,
    component_bytes: u64,
    outputs: BTreeSet<String>,
    intake: Option<Intake>,
    /// The one of which more is to come.
    open: Option<Content>,
}

/// A content, as far as it has come.
struct Content {
    kind: LineKind,
    name: String,
    object: Option<ObjectWord>,
    size: u64,
    data: Vec<u8>,
}

impl Contents {
    pub(super) fn new(org: OrgId, blobs: Option<Blobs>, room: SpoolRoom) -> Self {
        Self {
            org,
            blobs,
            room,
            components: BTreeMap::new(),
            component_bytes: 0,
            outputs: BTreeSet::new(),
            intake: None,
            open: None,
        }
    }

    /// Takes the first line of a content.
    ///
    /// # Errors
    /// 400 for a content that is not what it says.
    pub(super) async fn begin(&mut self, line: ContentLine) -> Result<(), ApiError> {
        self.whole()?;
        let ContentLine { kind, name, object, size, data } = line;
        if size > MAX_CONTENT {
            let message = format!("`{}` has more than {MAX_CONTENT} bytes", shown(&name));
            return Err(ApiError::TooLarge(message));
        }
        self.open = Some(Content { kind, name, object, size, data: Vec::new() });
        self.add(&data).await
    }

    /// Takes a further line of it.
    ///
    /// # Errors
    /// As for [`Contents::begin`].
    pub(super) async fn go_on(&mut self, line: &MoreLine) -> Result<(), ApiError> {
        self.add(&line.data).await
    }

    /// Proves that no content is half there.
    ///
    /// # Errors
    /// 400 when one is.
    pub(super) fn whole(&self) -> Result<(), ApiError> {
        match &self.open {
            Some(open) => Err(ApiError::Invalid(format!("`{}` is cut", shown(&open.name)))),
            None => Ok(()),
        }
    }

    async fn add(&mut self, data: &str) -> Result<(), ApiError> {
        let Some(mut open) = self.open.take() else {
            return Err(ApiError::invalid("there is nothing that this continues"));
        };
        let bytes = unbase64(data).ok_or_else(|| ApiError::invalid("`data` is not base64"))?;
        open.data.extend_from_slice(&bytes);
        let length = open.data.len() as u64;
        if length > open.size || (bytes.is_empty() && length < open.size) {
            return Err(wrong(&open.name, "another size than it says"));
        }
        if length < open.size {
            self.open = Some(open);
            return Ok(());
        }
        match open.kind {
            LineKind::Component => self.component(open),
            LineKind::Output => self.output(open).await,
            LineKind::Object => self.object(open).await,
            LineKind::Header | LineKind::More | LineKind::Event | LineKind::End => {
                Err(ApiError::invalid("this is no content"))
            }
        }
    }

    fn component(&mut self, content: Content) -> Result<(), ApiError> {
        if hex::encode(Sha256::digest(&content.data)) != content.name {
            return Err(wrong(&content.name, "other content than its name says"));
        }
        self.component_bytes += content.size;
        if self.component_bytes > MAX_COMPONENT_BYTES {
            let message = format!("the components have more than {MAX_COMPONENT_BYTES} bytes");
            return Err(ApiError::TooLarge(message));
        }
        self.components.insert(content.name, content.data);
        Ok(())
    }

    /// Stores a complete output under its own name, which texts of the conversation have.
    async fn output(&mut self, content: Content) -> Result<(), ApiError> {
        let name = content.name;
        let key = BlobKey::new(&self.org.to_string(), BlobUse::ToolOutput.kind(), &name);
        let key = key.map_err(|error| ApiError::invalid(error.to_string()))?;
        let blobs = self.blobs()?;
        let bytes = Bytes::from(content.data);
        let stored = match blobs.put(&key, bytes.clone()).await {
            // Once more, so that a collection which is about to delete what was there before does not.
            Ok(()) => blobs.renew(&key, bytes).await,
            Err(BlobError::Taken(_)) => {
                return Err(ApiError::Conflict(format!(
                    "the organisation has another tool output `{}`, and an import keeps names: import into another \
                     organisation",
                    shown(&name)
                )));
            }
            Err(error) => Err(error),
        };
        stored.map_err(ApiError::internal)?;
        self.outputs.insert(name);
        Ok(())
    }

    async fn object(&mut self, content: Content) -> Result<(), ApiError> {
        let kind = match content.object {
            Some(ObjectWord::Tree) => ObjectKind::Tree,
            Some(ObjectWord::File) => ObjectKind::File,
            None => return Err(wrong(&content.name, "no kind: `object` is `tree` or `file`")),
        };
        self.blobs()?;
        // In its pack it takes this, or less.
        self.room.take_bytes(content.data.len() as u64).await?;
        let intake = match self.intake.take() {
            Some(intake) => intake,
            None => {
                let folder = self.room.folder();
                Intake::new(folder, SnapshotLimits::default()).map_err(ApiError::internal)?
            }
        };
        let object = Object { id: content.name, kind, bytes: content.data.into() };
        self.intake = Some(intake.take(object).await.map_err(refused)?);
        Ok(())
    }

    fn blobs(&self) -> Result<&Blobs, ApiError> {
        self.blobs.as_ref().ok_or_else(|| {
            ApiError::invalid(
                "this gateway does not see the workers' blobs, so it cannot import files or long outputs: start it \
                 with --blob-url",
            )
        })
    }

    pub(super) fn component_of(&self, hash: &str) -> Option<&[u8]> {
        self.components.get(hash).map(Vec::as_slice)
    }

    pub(super) fn has_output(&self, name: &str) -> bool {
        self.outputs.contains(name)
    }

    pub(super) fn has_tree(&self, tree: &SnapshotTree) -> bool {
        let intake = self.intake.as_ref();
        intake.is_some_and(|intake| tree.as_str().parse().is_ok_and(|tree| intake.has(&tree)))
    }

    pub(super) fn has_objects(&self) -> bool {
        self.intake.is_some()
    }

    /// Stores the objects as one pack. Returns the components with their hashes, and the size of the pack.
    ///
    /// # Errors
    /// When the pack cannot be stored.
    pub(super) async fn store(self, pack: &str) -> Result<Stored, ApiError> {
        let mut stored = Stored { components: Vec::new(), bytes: None };
        for (hash, bytes) in self.components {
            stored.components.push((hex::decode(hash).map_err(ApiError::internal)?, bytes));
        }
        if let (Some(intake), Some(blobs)) = (self.intake, &self.blobs) {
            let kept = intake.store(blobs, &self.org.to_string(), pack).await;
            stored.bytes = kept.map_err(ApiError::internal)?;
        }
        Ok(stored)
    }
}

/// All that is ready for the database.
pub(super) struct Stored {
    pub(super) components: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) bytes: Option<u64>,
}

fn wrong(name: &str, how: &str) -> ApiError {
    ApiError::Invalid(format!("`{}` has {how}", shown(name)))
}

fn refused(error: IntakeError) -> ApiError {
    match error {
        IntakeError::Snapshot(error) => ApiError::internal(error),
        IntakeError::Beyond(_) => ApiError::TooLarge(error.to_string()),
        IntakeError::WrongContent(_) | IntakeError::NoTree(_) | IntakeError::Missing { .. } => {
            ApiError::Invalid(error.to_string())
        }
    }
}
