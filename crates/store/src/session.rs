use domain::{
    EventId, IdMint, ModelRef, OrgId, ProjectId, RevertStaged, Seq, SessionCreated, SessionEvent,
    SessionId, SessionRef, Stamp, TimestampMs, TurnUsage,
};
use serde::Deserialize;

use crate::tenant::missing;
use crate::tree::{MAX_CHILDREN, MAX_DEPTH};
use crate::{Store, StoreError};

/// How often a creation or a deletion starts over that met another one.
pub(crate) const TRIES: usize = 5;

/// A session to be created.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Its id.
    pub id: SessionId,
    /// Its first event.
    pub created: SessionCreated,
    /// The gateway's time.
    pub now: TimestampMs,
}

/// How the creation of a session went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    /// It is new.
    Created,
    /// It was there, at the same Location and with the same parent.
    Exists,
    /// Its parent is not there.
    Orphan,
    /// It would be more than [`MAX_DEPTH`] generations below its root.
    TooDeep,
    /// Its parent has [`MAX_CHILDREN`] children.
    TooMany,
}

/// A session as its projection holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// Its id, Location and organisation.
    pub at: SessionRef,
    /// Its project.
    pub project: ProjectId,
    /// The Location's directory.
    pub directory: String,
    /// Its title.
    pub title: String,
    /// The agent used last.
    pub agent: String,
    /// The model used last.
    pub model: Option<ModelRef>,
    /// When it was created.
    pub created_ms: TimestampMs,
    /// When a turn, a name or metadata last changed it.
    pub updated_ms: TimestampMs,
    /// How its last drain ended.
    pub outcome: Option<String>,
    /// The session that it is a child of.
    pub parent: Option<SessionId>,
    /// The session whose conversation it began with.
    pub fork_of: Option<SessionId>,
    /// The Revert that is staged.
    pub revert: Option<RevertStaged>,
    /// When the compaction that runs began.
    pub compacting_ms: Option<TimestampMs>,
    /// When its client archived it; lists leave it out.
    pub archived_ms: Option<TimestampMs>,
    /// The data that its client keeps with it: JSON text of an object, the client's bytes.
    pub metadata: Option<String>,
    /// Notices of its models for its user, in the order in which the models were first used.
    pub notices: Vec<ModelNotice>,
    /// Its usage, without its children.
    pub usage: TurnUsage,
    /// Whether it has work or a drain has it.
    pub busy: bool,
    /// The highest number of its log.
    pub seq: Seq,
}

/// A notice of a model for a session's user: that it is deprecated, say. Shown once for each model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ModelNotice {
    /// The model's provider.
    pub provider: String,
    /// Its name there.
    pub model: String,
    /// For people.
    pub text: String,
    /// When it was first used.
    #[serde(rename = "time")]
    pub time_ms: TimestampMs,
}

macro_rules! session_row {
    ($org:expr, $id:expr, $row:expr) => {{
        let (session, row) = ($id, $row);
        Ok::<SessionRow, StoreError>(SessionRow {
            at: domain::SessionRef { org: $org, location: row.location_id.parse()?, session },
            project: row.project_id.parse()?,
            directory: row.directory,
            title: row.title,
            agent: row.agent,
            model: row.provider.zip(row.model).map(|(provider, model)| domain::ModelRef {
                provider,
                model,
                variant: row.variant,
            }),
            created_ms: row.created_ms,
            updated_ms: row.updated_ms,
            outcome: row.outcome,
            parent: row.parent_id.map(|id| id.parse()).transpose()?,
            fork_of: row.fork_of.map(|id| id.parse()).transpose()?,
            revert: row
                .revert
                .map(|staged| serde_json::from_str(&staged))
                .transpose()
                .map_err(|error| StoreError::Unreadable(format!("a staged revert: {error}")))?,
            notices: row
                .notices
                .map(|notices| serde_json::from_str(&notices))
                .transpose()
                .map_err(|error| StoreError::Unreadable(format!("notices of models: {error}")))?
                .unwrap_or_default(),
            compacting_ms: row.compacting_ms,
            archived_ms: row.archived_ms,
            metadata: row.metadata,
            usage: domain::TurnUsage {
                input: row.input_tokens,
                output: row.output_tokens,
                reasoning: row.reasoning_tokens,
                cache_read: row.cache_read_tokens,
                cache_write: row.cache_write_tokens,
                cost: row.cost_nanos,
            },
            busy: row.ready,
            seq: domain::Seq(row.next_seq - 1),
        })
    }};
}
pub(crate) use session_row;

impl Store {
    /// Creates a session, or finds it when it is there at the same Location and with the same parent. Only
    /// [`Creation::Created`] has changed anything.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the id is another session's; [`StoreError::NotFound`] without the Location;
    /// [`StoreError::Feature`] for a rule or a variant of
    /// a model while builds may run that know none.
    pub async fn create_session(
        &self,
        org: OrgId,
        new: NewSession,
    ) -> Result<Creation, StoreError> {
        let first = SessionEvent::from(new.created.clone());
        if let Some(feature) = crate::cluster::feature(&first) {
            self.require(feature).await?;
        }
        // It locks its parent.
        let locks = new.created.parent.as_ref().unwrap_or(&new.id).to_string();
        self.at_head(org, &locks, move |connection| {
            Box::pin(async move {
                let mut mint = IdMint::after(Stamp::default(), new.now);
                let event = EventId::mint(&mut mint);
                let payload = serde_json::to_string(&new.created)
                    .map_err(|error| StoreError::Unreadable(error.to_string()))?;
                for _ in 0..TRIES {
                    let outcome = sqlx::query_scalar!(
                        r#"SELECT create_session($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
                               AS "outcome!""#,
                        org.0,
                        new.id.as_str(),
                        new.created.location.as_str(),
                        event.as_str(),
                        mint.last().0,
                        new.now,
                        payload,
                        new.created.parent.as_ref().map(SessionId::as_str),
                        MAX_DEPTH,
                        MAX_CHILDREN,
                    )
                    .fetch_one(&mut *connection)
                    .await?;
                    return match outcome.as_str() {
                        "created" => Ok(Creation::Created),
                        "exists" => Ok(Creation::Exists),
                        "orphan" => Ok(Creation::Orphan),
                        "deep" => Ok(Creation::TooDeep),
                        "crowded" => Ok(Creation::TooMany),
                        "nowhere" => Err(StoreError::NotFound),
                        "raced" => continue, // found as it was made, the next time
                        _ => break,
                    };
                }
                Err(StoreError::Conflict { what: "a session with this id" })
            })
        })
        .await
    }

    /// One session, in one round trip.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without it.
    pub async fn session(&self, org: OrgId, id: SessionId) -> Result<SessionRow, StoreError> {
        self.lane(org).run(move |connection| Box::pin(async move {
            let row = sqlx::query!(
                r#"SELECT location_id AS "location_id!", project_id AS "project_id!",
                       directory AS "directory!", title AS "title!", agent AS "agent!", provider, model,
                       created_ms AS "created_ms!", updated_ms AS "updated_ms!", outcome,
                       input_tokens AS "input_tokens!", output_tokens AS "output_tokens!",
                       reasoning_tokens AS "reasoning_tokens!",
                       cache_read_tokens AS "cache_read_tokens!",
                       cache_write_tokens AS "cache_write_tokens!", ready AS "ready!",
                       next_seq AS "next_seq!", cost_nanos AS "cost_nanos!", parent_id, compacting_ms,
                       fork_of, revert, variant, notices, archived_ms, metadata
                   FROM show_session($1, $2)"#,
                org.0,
                id.as_str(),
            )
            .fetch_one(&mut *connection)
            .await
            .map_err(missing)?;
            session_row!(org, id, row)
        })).await
    }
}
