//! Managed Tool Output Files, as a session's tools see them.

use async_trait::async_trait;
use blobs::{BlobError, BlobKey, Blobs};
use bytes::Bytes;

/// The directory of Managed Tool Output Files for models: one flat directory.
pub const MANAGED_PREFIX: &str = "/tool-output/";
/// The kind of their blobs.
pub const BLOB_KIND: &str = "tool-output";

/// Resolves `/tool-output/NAME` for one session.
#[async_trait]
pub trait ManagedOutputs: Send + Sync {
    /// Returns the complete file; `None` if the name does not exist, has expired, or is not for this session.
    async fn read(&self, name: &str) -> Result<Option<Bytes>, BlobError>;
}

/// All files of one organisation. Names cannot be guessed; for stricter access, put another resolver in
/// front.
#[derive(Debug, Clone)]
pub struct OrgOutputs {
    /// The blobs.
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
