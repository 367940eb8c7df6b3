use domain::OrgId;

use crate::pool::Tx;
use crate::{Store, StoreError};

/// Stores what a request is made of, by content. A row that is there already is the same bytes.
pub(crate) async fn insert_components(
    tx: &mut Tx,
    org: OrgId,
    components: &[(Vec<u8>, Vec<u8>)],
) -> Result<(), StoreError> {
    if components.is_empty() {
        return Ok(());
    }
    let (hashes, bytes): (Vec<Vec<u8>>, Vec<Vec<u8>>) = components.iter().cloned().unzip();
    sqlx::query!(
        "INSERT INTO request_component (org_id, hash, bytes)
         SELECT $1, hash, bytes FROM unnest($2::bytea[], $3::bytea[]) AS new (hash, bytes)
         ORDER BY hash ON CONFLICT DO NOTHING",
        org.0,
        &hashes,
        &bytes,
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

impl Store {
    /// The bytes of a component by its hash (hex).
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when no attempt of this organisation stored it.
    pub async fn component(&self, org: OrgId, hash: &str) -> Result<Vec<u8>, StoreError> {
        let hash = hex::decode(hash).map_err(|error| StoreError::Unreadable(error.to_string()))?;
        let store = self.clone();
        tasks::detached(async move {
            let mut tx = store.tenant(org).await?;
            let bytes = sqlx::query_scalar!(
                "SELECT bytes FROM request_component WHERE org_id = $1 AND hash = $2",
                org.0,
                hash,
            )
            .fetch_optional(&mut *tx)
            .await?;
            tx.commit().await?;
            bytes.ok_or(StoreError::NotFound)
        })
        .await
    }
}
