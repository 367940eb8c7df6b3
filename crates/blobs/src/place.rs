//! Where blobs are kept, as one URL.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use object_store::path::Path as StorePath;
use url::Url;

/// The place of all blobs: `file:///folder`, `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlobPlace {
    /// A folder of this machine, by its absolute path.
    Folder(PathBuf),
    /// A bucket of an object store.
    Bucket {
        /// The kind of store.
        store: BucketStore,
        /// Its name; a container's at Azure.
        bucket: String,
        /// The path of all blobs in it, without slashes at its ends; often empty.
        prefix: String,
    },
}

/// A kind of object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketStore {
    /// Amazon S3, or a store that speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

impl BucketStore {
    const ALL: [Self; 3] = [Self::S3, Self::Gcs, Self::Azure];

    const fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gs",
            Self::Azure => "az",
        }
    }
}

impl BlobPlace {
    /// Returns the place of an absolute folder.
    #[must_use]
    pub fn folder(folder: &Path) -> Self {
        Self::Folder(folder.to_owned())
    }
}

impl FromStr for BlobPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let forms =
            "use file:///FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX";
        if text.starts_with('/') {
            return Err(format!("a folder is written as a URL: file://{text}"));
        }
        // The text is not repeated where it may hold a password.
        let url: Url = text.parse().map_err(|_| format!("this is no URL; {forms}"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "a URL of blobs holds no credentials; set them by their own flags or variables"
                    .to_owned(),
            );
        }
        if url.query().is_some() || url.fragment().is_some() || url.port().is_some() {
            return Err(format!("a URL of blobs has no port, `?` or `#`; {forms}"));
        }
        if url.scheme() == "file" {
            let path = url.to_file_path().ok().filter(|path| path.parent().is_some());
            return path
                .map(Self::Folder)
                .ok_or_else(|| "write the whole path of the folder: file:///srv/blobs".to_owned());
        }
        let store = BucketStore::ALL.into_iter().find(|store| store.scheme() == url.scheme());
        let store =
            store.ok_or_else(|| format!("blobs cannot be kept at `{}:`; {forms}", url.scheme()))?;
        let bucket = url.host_str().unwrap_or_default().to_owned();
        if bucket.is_empty() {
            return Err(format!("the URL names no bucket; {forms}"));
        }
        let prefix = url.path().trim_matches('/').to_owned();
        if !StorePath::parse(&prefix).is_ok_and(|parsed| parsed.as_ref() == prefix) {
            return Err("a prefix consists of plain names between single slashes".to_owned());
        }
        Ok(Self::Bucket { store, bucket, prefix })
    }
}

impl fmt::Display for BlobPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => write!(f, "file://{}", folder.display()),
            Self::Bucket { store, bucket, prefix } if prefix.is_empty() => {
                write!(f, "{}://{bucket}", store.scheme())
            }
            Self::Bucket { store, bucket, prefix } => {
                write!(f, "{}://{bucket}/{prefix}", store.scheme())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_folder_or_a_bucket_with_a_prefix() {
        for text in ["file:///srv/blobs", "s3://b", "s3://b/a/c", "gs://b/x", "az://container"] {
            let place: BlobPlace = text.parse().unwrap();
            assert_eq!(place.to_string(), text);
        }
        let slash: BlobPlace = "s3://b/a/".parse().unwrap();
        assert_eq!(slash.to_string(), "s3://b/a");
    }

    #[test]
    fn a_wrong_place_is_refused_with_the_right_form() {
        for (text, said) in [
            ("/srv/blobs", "file:///srv/blobs"),
            ("srv", "no URL"),
            ("file:///", "whole path"),
            ("http://h/b", "cannot be kept at `http:`"),
            ("s3:///x", "names no bucket"),
            ("s3://key:SECRET@b", "holds no credentials"),
            ("s3://b?x=SECRET", "no port"),
            ("s3://b/a//c", "single slashes"),
        ] {
            let error = text.parse::<BlobPlace>().unwrap_err();
            assert!(error.contains(said) && !error.contains("SECRET"), "{text}: {error}");
        }
    }
}
