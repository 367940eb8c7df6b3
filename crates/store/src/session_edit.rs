use domain::{
    EventId, IdMint, OrgId, Seq, SessionArchived, SessionDescribed, SessionEvent, SessionId,
    SessionRenamed, Stamp, TimestampMs,
};

use crate::{Store, StoreError, cluster};

/// The words of a client about a session, all at once. The default says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionEdit {
    /// Its title.
    pub renamed: Option<SessionRenamed>,
    /// Whether it is archived.
    pub archived: Option<SessionArchived>,
    /// Its metadata.
    pub described: Option<SessionDescribed>,
}

impl From<SessionRenamed> for SessionEdit {
    fn from(renamed: SessionRenamed) -> Self {
        Self { renamed: Some(renamed), ..Self::default() }
    }
}

impl From<SessionArchived> for SessionEdit {
    fn from(archived: SessionArchived) -> Self {
        Self { archived: Some(archived), ..Self::default() }
    }
}

impl From<SessionDescribed> for SessionEdit {
    fn from(described: SessionDescribed) -> Self {
        Self { described: Some(described), ..Self::default() }
    }
}

impl SessionEdit {
    /// The events that say it, in their order; none for the default.
    pub fn events(self) -> impl Iterator<Item = SessionEvent> {
        let Self { renamed, archived, described } = self;
        let renamed = renamed.map(SessionEvent::from);
        let archived = archived.map(SessionEvent::from);
        renamed.into_iter().chain(archived).chain(described.map(SessionEvent::from))
    }
}

impl Store {
    /// Logs all of a change or nothing of it; the place of its end in the log. It wakes nobody.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session; [`StoreError::Feature`] while builds may run that do not know
    /// one of its events.
    pub async fn edit_session(
        &self,
        org: OrgId,
        id: SessionId,
        change: SessionEdit,
        now: TimestampMs,
    ) -> Result<Seq, StoreError> {
        let events: Vec<SessionEvent> = change.events().collect();
        for feature in events.iter().filter_map(cluster::feature) {
            self.require(feature).await?;
        }
        self.at_head(org, &id.to_string(), move |connection| {
            Box::pin(async move {
                let mut mint = IdMint::after(Stamp::default(), now);
                let ids: Vec<String> =
                    events.iter().map(|_| EventId::mint(&mut mint).to_string()).collect();
                let kinds: Vec<String> =
                    events.iter().map(|event| event.kind().to_owned()).collect();
                let payloads: Vec<String> = events.iter().map(SessionEvent::payload).collect();
                let seq = sqlx::query_scalar!(
                    "SELECT edit_session($1, $2, $3, $4, $5, $6, $7)",
                    org.0,
                    id.as_str(),
                    mint.last().0,
                    now,
                    &ids,
                    &kinds,
                    &payloads,
                )
                .fetch_one(&mut *connection)
                .await?;
                seq.map(Seq).ok_or(StoreError::NotFound)
            })
        })
        .await
    }
}
