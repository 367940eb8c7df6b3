//! Finds rows whose blob is missing (I14), if this gateway can read the blobs.

use blobs::{BlobError, BlobKey, Blobs};
use domain::OrgId;
use futures::{StreamExt, TryStreamExt, stream};
use store::{BlobUse, NamedBlob, Violation};

use crate::ApiState;
use crate::error::ApiError;

/// Rows in one read.
const PAGE: i64 = 1_000;
/// Blobs looked up at the same time.
const PARALLEL: usize = 32;

/// Returns at most `most` rows of an organisation that name a missing blob.
///
/// # Errors
/// 400 when this gateway cannot read the blobs.
pub(crate) async fn missing(
    state: &ApiState,
    org: OrgId,
    most: usize,
) -> Result<Vec<Violation>, ApiError> {
    let unseen = "this gateway does not see the workers' blobs: start it with --blob-url, or ask without `blobs`";
    let blobs = state.blobs().ok_or_else(|| ApiError::invalid(unseen))?;
    let mut missing = Vec::new();
    // A lost index is no loss: it is made again from its pack, and packs of before have none.
    for of in BlobUse::ALL.into_iter().filter(|of| *of != BlobUse::RepositoryIndex) {
        let mut after = String::new();
        loop {
            let page = state.store().named_blobs(org, of, &after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after.clone_from(&last.name);
            let looks = page.into_iter().map(|named| look(blobs, org, of, named));
            let mut looked = stream::iter(looks).buffered(PARALLEL);
            while let Some(found) = looked.try_next().await? {
                missing.extend(found);
                if missing.len() >= most {
                    return Ok(missing);
                }
            }
        }
    }
    Ok(missing)
}

async fn look(
    blobs: &Blobs,
    org: OrgId,
    of: BlobUse,
    NamedBlob { name, holder }: NamedBlob,
) -> Result<Option<Violation>, ApiError> {
    let there = async { blobs.size(&BlobKey::new(&org.to_string(), of.kind(), &name)?).await };
    match there.await {
        Ok(_) => Ok(None),
        Err(BlobError::NotFound(key)) => Ok(Some(Violation {
            invariant: "I14".to_owned(),
            session: holder,
            found: format!("a row names the blob {key}, which is not there"),
        })),
        Err(error) => Err(ApiError::internal(error)),
    }
}
