//! Deletes rows that outlive sessions, page by page: no statement takes long, and none waits for another's lock.

use std::time::Duration;

use domain::OrgId;
use store::{Store, StoreError};

/// The most rows in one statement.
const PAGE: i32 = 500;
/// The most organisations in one query.
const ORGANISATIONS: i64 = 500;
/// A component is freed by the deletion of the list that names it, so two looks find everything.
const LOOKS: usize = 2;

/// The collector of rows. Without a retention Locations are kept for ever.
pub(super) struct RowCollector {
    pub(super) store: Store,
    pub(super) retention: Option<Duration>,
}

/// The number of rows that were deleted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct CollectedRows {
    pub(super) components: u64,
    pub(super) locations: u64,
    pub(super) packs: u64,
    /// Patches, bundles, uploads and repositories.
    pub(super) workspaces: u64,
}

impl RowCollector {
    /// Looks at all organisations once.
    pub(super) async fn collect(&self) -> Result<CollectedRows, StoreError> {
        let mut all = CollectedRows::default();
        let mut after = None;
        loop {
            let page = self.store.organisations(after, ORGANISATIONS).await?;
            let Some(last) = page.last().copied() else { return Ok(all) };
            for org in page {
                all.components += self.components(org).await?;
                if let Some(retention) = self.retention {
                    all.locations += self.locations(org, retention).await?;
                    all.packs += self.packs(org).await?;
                    let deleted = self.store.collect_workspaces(org, retention).await?;
                    all.workspaces += u64::from(deleted.unsigned_abs());
                }
            }
            after = Some(last);
        }
    }

    async fn components(&self, org: OrgId) -> Result<u64, StoreError> {
        let mut deleted = 0;
        for _ in 0..LOOKS {
            let before = deleted;
            let mut next = Some(Vec::new());
            while let Some(after) = next.take() {
                let page = self.store.collect_components(org, after, PAGE).await?;
                deleted += u64::from(page.deleted.unsigned_abs());
                next = page.last.filter(|_| page.looked == PAGE);
            }
            if deleted == before {
                break;
            }
        }
        Ok(deleted)
    }

    async fn locations(&self, org: OrgId, retention: Duration) -> Result<u64, StoreError> {
        let mut deleted = 0;
        let mut next = Some(String::new());
        while let Some(after) = next.take() {
            let page = self.store.collect_locations(org, after, PAGE, retention).await?;
            deleted += u64::from(page.deleted.unsigned_abs());
            next = page.last.filter(|_| page.looked == PAGE);
        }
        Ok(deleted)
    }

    async fn packs(&self, org: OrgId) -> Result<u64, StoreError> {
        let mut deleted = 0;
        while let Some(packs) = self.store.collect_packs(org, PAGE).await? {
            deleted += u64::from(packs.unsigned_abs());
        }
        Ok(deleted)
    }
}
