//! The shipped catalog, and the compression of stored ones.

use std::sync::{Arc, LazyLock};

use crate::ingest::{MAX_BYTES, ingest};
use crate::model::Catalog;

const SHIPPED: &[u8] = include_bytes!("../data/models-dev.json.zst");

/// The SHA-256 of the shipped text.
#[cfg(test)]
const SNAPSHOT_SHA256: &str = "1806221f39f4b1c67adbd14551b0d64c8a6a41e2ac99359a4b16026cc3289726";

/// Returns the shipped catalog, parsed once per process. It is used until a refresh succeeds.
#[must_use]
pub fn shipped() -> Arc<Catalog> {
    static CATALOG: LazyLock<Arc<Catalog>> = LazyLock::new(|| {
        let json =
            unpack(SHIPPED).expect("the shipped catalog is packed by us, and a test reads it");
        let (catalog, _) = ingest(&json).expect("a test reads the shipped catalog");
        Arc::new(catalog)
    });
    Arc::clone(&CATALOG)
}

/// Compresses a catalog's text for storage.
///
/// # Errors
/// Zstandard cannot allocate.
pub fn pack(json: &[u8]) -> std::io::Result<Vec<u8>> {
    zstd::bulk::compress(json, 9)
}

/// Decompresses the output of [`pack`].
///
/// # Errors
/// The data is broken, or exceeds [`MAX_BYTES`].
pub fn unpack(packed: &[u8]) -> std::io::Result<Vec<u8>> {
    zstd::bulk::decompress(packed, MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    #[test]
    fn the_shipped_catalog_is_what_its_provenance_says_and_every_model_in_it_is_read() {
        let json = unpack(SHIPPED).unwrap();
        assert_eq!(hex::encode(Sha256::digest(&json)), SNAPSHOT_SHA256);
        let (catalog, skipped) = ingest(&json).unwrap();
        assert_eq!(skipped, []);
        assert_eq!(catalog.providers().count(), 120);
        // Twelve modes become separate models here.
        assert_eq!(catalog.models(), 4_490 + 12);
        assert_eq!(catalog.updated, "2026-05-12");
        assert_eq!(catalog, *shipped());
        assert_eq!(unpack(&pack(&json).unwrap()).unwrap(), json);
    }

    #[test]
    fn what_is_no_packed_catalog_is_an_error() {
        assert!(unpack(b"not zstd").is_err());
        assert!(unpack(&SHIPPED[..100]).is_err());
    }
}
