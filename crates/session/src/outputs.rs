//! The complete outputs that a session's tools may look at, and its list of tasks.

use async_trait::async_trait;
use blobs::BlobError;
use bytes::Bytes;
use domain::SessionRef;
use store::Store;
use tools::{ManagedOutputs, OrgOutputs, TaskList, Unlisted};

use crate::runtime::Runtime;

/// Reads any file of the organisation whose name the model knows, and lists those of the session.
pub(crate) struct SessionOutputs {
    of_org: OrgOutputs,
    store: Store,
    session: SessionRef,
}

impl SessionOutputs {
    pub(crate) fn new(runtime: &Runtime, session: &SessionRef) -> Self {
        let of_org = OrgOutputs { blobs: runtime.blobs.clone(), org: session.org.to_string() };
        Self { of_org, store: runtime.store.clone(), session: session.clone() }
    }
}

#[async_trait]
impl ManagedOutputs for SessionOutputs {
    async fn read(&self, name: &str) -> Result<Option<Bytes>, BlobError> {
        self.of_org.read(name).await
    }

    async fn names(&self, limit: usize) -> Result<Vec<String>, Unlisted> {
        let limit = i64::try_from(limit)?;
        let SessionRef { org, session, .. } = &self.session;
        Ok(self.store.kept_outputs(*org, session.clone(), limit).await?)
    }
}

#[async_trait]
impl TaskList for SessionOutputs {
    async fn tasks(&self) -> Result<Option<String>, Unlisted> {
        let SessionRef { org, session, .. } = &self.session;
        Ok(self.store.todos(*org, session.clone()).await?)
    }
}
