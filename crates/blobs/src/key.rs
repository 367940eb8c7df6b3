//! Names of blobs.

use std::fmt;

use object_store::path::Path;

use crate::BlobError;

/// The path of a blob: `o/<org>/<kind>/<name>`. Each part is a plain name, so no path leaves its
/// organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobKey(Path);

impl BlobKey {
    /// Makes a key. `org` is the organisation's id, `kind` the purpose of the blob, `name` unique within
    /// both.
    pub fn new(org: &str, kind: &str, name: &str) -> Result<Self, BlobError> {
        for part in [org, kind, name] {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            if part.is_empty()
                || part.len() > 200
                || part.starts_with('.')
                || !part.bytes().all(plain)
            {
                return Err(BlobError::BadName(part.to_owned()));
            }
        }
        Ok(Self(Path::from_iter(["o", org, kind, name])))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl fmt::Display for BlobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
