//! Managed Tool Output Files, as a session's tools read them.

use async_trait::async_trait;
use blobs::{BlobError, BlobKey, Blobs};
use bytes::Bytes;

/// Where Managed Tool Output Files are to a model: one flat directory.
pub const MANAGED_PREFIX: &str = "/tool-output/";
/// Kind of their blobs.
pub const BLOB_KIND: &str = "tool-output";

/// Finds what `/tool-output/NAME` is for one session.
#[async_trait]
pub trait ManagedOutputs: Send + Sync {
    /// The complete file; `None` when there is none of that name, any more, or for this session.
    async fn read(&self, name: &str) -> Result<Option<Bytes>, BlobError>;
}

/// All of one organisation's files. A name is unguessable; who needs more than that puts a resolver before this one.
#[derive(Debug, Clone)]
pub struct OrgOutputs {
    /// Where they are.
    pub blobs: Blobs,
    /// The organisation's id.
    pub org: String,
}

#[async_trait]
impl ManagedOutputs for OrgOutputs {
    async fn read(&self, name: &str) -> Result<Option<Bytes>, BlobError> {
        let key = match BlobKey::new(&self.org, BLOB_KIND, name) {
            Ok(key) => key,
            Err(BlobError::BadName(_)) => return Ok(None),
            Err(other) => return Err(other),
        };
        match self.blobs.get(&key).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(BlobError::NotFound(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }
}
