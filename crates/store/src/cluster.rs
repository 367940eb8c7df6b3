use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::{
    Feature, FeatureLevel, FencingToken, Generation, ModelRef, ReplyPart, SessionCreated,
    SessionEvent,
};
use sqlx::{ConnectOptions, Connection, PgExecutor};
use tokio::time::Instant;

use crate::{Store, StoreError, pooler};

/// The one row about the cluster as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterRow {
    /// The high bits of every fencing token.
    pub generation: Generation,
    /// The level that every running build understands.
    pub feature_level: FeatureLevel,
}

/// The most sessions that were made between a backup and the fault that made it necessary.
const FORGOTTEN_SESSIONS: i64 = 1 << 20;

/// Returns the feature of this event that older builds do not read.
pub(crate) fn feature(event: &SessionEvent) -> Option<Feature> {
    if let SessionEvent::SessionCreated(created) = event {
        created_with(created)
    } else if needs_state(event) {
        Some(Feature::ProviderState)
    } else {
        feature_of_kind(event)
    }
}

/// Returns the highest feature that a session begins with.
pub(crate) fn created_with(created: &SessionCreated) -> Option<Feature> {
    if created.metadata.is_some() {
        Some(Feature::Archive)
    } else if !created.rules.is_empty() {
        Some(Feature::ToolRules)
    } else {
        varies(created.model.as_ref()).then_some(Feature::ProviderState)
    }
}

/// Whether a build that knows the event's kind alone would show the model something else.
fn needs_state(event: &SessionEvent) -> bool {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others are what they were")]
    match event {
        SessionEvent::TurnReplied(replied) => replied.parts.iter().any(ReplyPart::has_state),
        SessionEvent::ToolCalled(called) => called.intent.metadata.is_some(),
        SessionEvent::PromptAdmitted(prompt) => varies(prompt.model.as_ref()),
        SessionEvent::PromptPromoted(promoted) => varies(Some(&promoted.model)),
        SessionEvent::TurnStarted(started) => varies(Some(&started.model)),
        _ => false,
    }
}

/// Whether a variant was chosen.
pub(crate) fn varies(model: Option<&ModelRef>) -> bool {
    model.is_some_and(|model| model.variant.is_some())
}

fn feature_of_kind(event: &SessionEvent) -> Option<Feature> {
    match event {
        SessionEvent::SessionCreated(_)
        | SessionEvent::PromptAdmitted(_)
        | SessionEvent::PromptPromoted(_)
        | SessionEvent::EpochStarted(_)
        | SessionEvent::ContextUpdated(_)
        | SessionEvent::TurnStarted(_)
        | SessionEvent::AttemptStarted(_)
        | SessionEvent::AttemptEnded(_)
        | SessionEvent::RetryScheduled(_)
        | SessionEvent::TextCheckpointed(_)
        | SessionEvent::ToolCalled(_)
        | SessionEvent::ToolStarted(_)
        | SessionEvent::ToolSettled(_)
        | SessionEvent::TurnReplied(_)
        | SessionEvent::TurnSettled(_)
        | SessionEvent::NoticeRecorded(_)
        | SessionEvent::InterruptRequested(_)
        | SessionEvent::DrainEnded(_) => None,
        SessionEvent::ToolAsked(_) | SessionEvent::ToolAnswered(_) => Some(Feature::Asks),
        SessionEvent::SessionArchived(_) | SessionEvent::SessionDescribed(_) => {
            Some(Feature::Archive)
        }
        SessionEvent::SessionRenamed(_)
        | SessionEvent::EntrySet(_)
        | SessionEvent::EntryRemoved(_)
        | SessionEvent::ControlAdmitted(_)
        | SessionEvent::ControlDelivered(_)
        | SessionEvent::InputCancelled(_)
        | SessionEvent::DeliveryChanged(_)
        | SessionEvent::WakeRequested(_)
        | SessionEvent::CompactionStarted(_)
        | SessionEvent::CompactionReminded(_)
        | SessionEvent::CompactionEnded(_)
        | SessionEvent::TitleStarted(_)
        | SessionEvent::TitleEnded(_)
        | SessionEvent::SessionMoved(_)
        | SessionEvent::SessionForked(_)
        | SessionEvent::WorkspaceSnapshotted(_)
        | SessionEvent::WorkspaceRestored(_)
        | SessionEvent::RevertStaging(_)
        | SessionEvent::RevertStaged(_)
        | SessionEvent::RevertCleared(_)
        | SessionEvent::RevertCommitted(_) => Some(Feature::Controls),
    }
}

/// The cluster's feature level, as it was last read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Features(Arc<Mutex<Option<(FeatureLevel, Instant)>>>);

/// How long a level that was read is believed.
const BELIEVED: Duration = Duration::from_secs(60);

impl Features {
    fn known(&self, now: Instant) -> Option<FeatureLevel> {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.filter(|(_, read)| now.duration_since(*read) < BELIEVED).map(|(level, _)| level)
    }

    fn last(&self) -> Option<FeatureLevel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).map(|(level, _)| level)
    }

    fn learn(&self, level: FeatureLevel, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((level, now));
    }
}

impl Store {
    /// The level that every running build understands, as it was within the last minute.
    ///
    /// # Errors
    /// When the database fails or was never migrated.
    pub async fn feature_level(&self) -> Result<FeatureLevel, StoreError> {
        if let Some(level) = self.features.known(Instant::now()) {
            return Ok(level);
        }
        let level = match self.cluster().await {
            Ok(row) => row.feature_level,
            // It only grows: one that was read is good until Postgres answers again.
            Err(error) if error.may_pass() => return self.features.last().ok_or(error),
            Err(error) => return Err(error),
        };
        self.features.learn(level, Instant::now());
        Ok(level)
    }

    /// Refuses what builds without this feature could not read, while there may be some.
    pub(crate) async fn require(&self, feature: Feature) -> Result<(), StoreError> {
        let level = self.feature_level().await?;
        if level.has(feature) { Ok(()) } else { Err(StoreError::Feature { feature, level }) }
    }

    /// Reads the cluster's row.
    ///
    /// # Errors
    /// When the database fails or was never migrated.
    pub async fn cluster(&self) -> Result<ClusterRow, StoreError> {
        self.sched().run(|connection| Box::pin(async move { read(connection).await })).await
    }

    /// The highest fence of any Location; 0 where no worker has been yet. Reads all Locations: only for a placement
    /// group that is new.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn highest_fence(&self) -> Result<FencingToken, StoreError> {
        self.sched()
            .run(move |connection| {
                Box::pin(async move {
                    let highest = sqlx::query_scalar!(r#"SELECT max(fence) FROM location"#);
                    Ok(FencingToken(highest.fetch_one(&mut *connection).await?.unwrap_or(0)))
                })
            })
            .await
    }

    /// Raises the generation, so that every token minted from now on outranks every earlier one: for
    /// `placement init`, a restore, a promoted standby. `migrate_url` logs in as `oc_migrate`.
    ///
    /// # Errors
    /// When the database cannot be reached or all generations are used.
    pub async fn raise_generation(migrate_url: &str) -> Result<Generation, StoreError> {
        let options = pooler::read_url(migrate_url)?;
        let mut connection = options.connect().await?;
        let raised = sqlx::query_scalar!(
            "UPDATE cluster SET generation = generation + 1 RETURNING generation"
        )
        .fetch_one(&mut connection)
        .await?;
        // A restored backup may have forgotten sessions: no new one gets an incarnation of theirs.
        sqlx::query("SELECT setval('session_incarnation', nextval('session_incarnation') + $1)")
            .bind(FORGOTTEN_SESSIONS)
            .execute(&mut connection)
            .await?;
        connection.close().await?;
        generation(raised)
    }

    /// Raises the feature level to [`FeatureLevel::OF_THIS_BUILD`], for good: from then on this build's events are written, and no
    /// older build is to run any more. Returns the level; a higher one stays. `migrate_url` logs in as
    /// `oc_migrate`.
    ///
    /// # Errors
    /// When the database cannot be reached or was never migrated.
    pub async fn raise_feature_level(migrate_url: &str) -> Result<FeatureLevel, StoreError> {
        let options = pooler::read_url(migrate_url)?;
        let mut connection = options.connect().await?;
        let raised = sqlx::query_scalar!(
            "UPDATE cluster SET feature_level = greatest(feature_level, $1) RETURNING feature_level",
            FeatureLevel::OF_THIS_BUILD.0,
        )
        .fetch_one(&mut connection)
        .await?;
        connection.close().await?;
        Ok(FeatureLevel(raised))
    }

    /// The cluster's row, as whoever `url` logs in as may read it: for a command that is no service.
    ///
    /// # Errors
    /// When the database cannot be reached or was never migrated.
    pub async fn read_cluster(url: &str) -> Result<ClusterRow, StoreError> {
        pooler::once(url, |connection| Box::pin(async move { read(connection).await })).await
    }
}

async fn read(from: impl PgExecutor<'_>) -> Result<ClusterRow, StoreError> {
    let row = sqlx::query!("SELECT generation, feature_level FROM cluster").fetch_one(from).await?;
    Ok(ClusterRow {
        generation: generation(row.generation)?,
        feature_level: FeatureLevel(row.feature_level),
    })
}

fn generation(stored: i32) -> Result<Generation, StoreError> {
    u32::try_from(stored)
        .map(Generation)
        .map_err(|_| StoreError::Unreadable(format!("generation {stored}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_with_provider_state_is_for_builds_that_keep_it() {
        let reply = |part: &str| {
            let payload =
                format!(r#"{{"turn":"trn_1","message":"msg_1","parts":[{part}],"finish":"stop"}}"#);
            feature(&SessionEvent::read("turn.replied", 1, &payload).expect("a reply"))
        };
        let state = Some(Feature::ProviderState);
        assert_eq!(reply(r#"{"type":"text","id":"prt_1","text":"a"}"#), None);
        assert_eq!(reply(r#"{"type":"text","id":"prt_1","text":"a","metadata":"{}"}"#), state);
        let hosted = r#""id":"prt_1","call":"c","name":"search""#;
        assert_eq!(reply(&format!(r#"{{"type":"hosted-call",{hosted},"input":"{{}}"}}"#)), state);
    }

    #[test]
    fn a_level_is_believed_for_a_minute() {
        let (features, now) = (Features::default(), Instant::now());
        assert_eq!(features.known(now), None);
        features.learn(FeatureLevel(2), now);
        assert_eq!(features.known(now + BELIEVED / 2), Some(FeatureLevel(2)));
        assert_eq!(features.known(now + BELIEVED), None);
    }
}
