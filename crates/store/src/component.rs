use domain::OrgId;

use crate::{Store, StoreError};

impl Store {
    /// The bytes of a component by its hash (hex).
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when no attempt of this organisation stored it.
    pub async fn component(&self, org: OrgId, hash: &str) -> Result<Vec<u8>, StoreError> {
        let hash = hex::decode(hash).map_err(|error| StoreError::Unreadable(error.to_string()))?;
        self.read(org, move |connection| {
            Box::pin(async move {
                let bytes = sqlx::query_scalar!(
                    "SELECT bytes FROM request_component WHERE org_id = $1 AND hash = $2",
                    org.0,
                    hash,
                )
                .fetch_optional(&mut *connection)
                .await?;
                bytes.ok_or(StoreError::NotFound)
            })
        })
        .await
    }
}
