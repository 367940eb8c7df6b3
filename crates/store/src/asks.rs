//! Asks: calls that wait for somebody's answer, their answers, and the permissions that people save.

use domain::{
    Answer, AskId, AskStatus, Author, EventId, IdMint, MessageId, OrgId, ProjectId,
    SavedPermission, Seq, SessionEvent, SessionId, SessionRef, Stamp, TimestampMs, ToolAsked,
    Word as _,
};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{Store, StoreError};

/// The most asks that a list has.
pub const MAX_ASKS: i64 = 1_000;

/// An ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskRow {
    /// Its session.
    pub session: SessionRef,
    /// Its directory, as the session's Location has it.
    pub directory: String,
    /// Its project.
    pub project: ProjectId,
    /// The message with the call.
    pub message: MessageId,
    /// The call, the question and the time until which an answer is waited for.
    pub asked: ToolAsked,
    /// Whether nobody has answered yet, and the call waits.
    pub is_pending: bool,
    /// When it was asked.
    pub asked_ms: TimestampMs,
}

/// A permission that somebody has saved for a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptPermission {
    /// Its id.
    pub id: String,
    /// The project.
    pub project: ProjectId,
    /// The permission.
    pub saved: SavedPermission,
    /// Who saved it.
    pub by: Option<Author>,
    /// When.
    pub saved_ms: TimestampMs,
}

/// The effect of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answering {
    /// It is durable, or was before with the same words.
    Answered {
        /// Its place in the log.
        seq: Seq,
        /// Where the session goes on. Wake its owner.
        session: SessionRef,
    },
    /// Another answer stands.
    Conflict,
    /// Nobody waits for it any longer: the call is settled, or its session was interrupted.
    Gone,
}

impl Store {
    /// The asks of an organisation that wait for an answer, or those of one session, the oldest first. At most
    /// [`MAX_ASKS`]: of more, those that expire first.
    ///
    /// # Errors
    /// When the database fails or an event cannot be read.
    pub async fn pending_asks(
        &self,
        org: OrgId,
        session: Option<SessionId>,
    ) -> Result<Vec<AskRow>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let ids = match session {
                    Some(session) => asks_of_session(connection, org, &session).await?,
                    None => first_asks(connection, org).await?,
                };
                asks(connection, org, &ids).await
            })
        })
        .await
    }

    /// An ask, answered or not; `None` if there is none.
    ///
    /// # Errors
    /// When the database fails or its event cannot be read.
    pub async fn ask(&self, org: OrgId, ask: AskId) -> Result<Option<AskRow>, StoreError> {
        self.read(org, move |connection| {
            let ids = vec![ask.to_string()];
            Box::pin(async move { Ok(asks(connection, org, &ids).await?.pop()) })
        })
        .await
    }

    /// Answers an ask (I16). Durable when it returns; the hint to the owner is the caller's. With [`Answer::Always`] its
    /// patterns are saved for the project.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the ask.
    pub async fn answer_ask(
        &self,
        org: OrgId,
        ask: AskId,
        answer: Answer,
        by: Option<Author>,
        now: TimestampMs,
    ) -> Result<Answering, StoreError> {
        let unreadable = |error: serde_json::Error| StoreError::Unreadable(error.to_string());
        let by = by.map(|by| serde_json::to_string(&by)).transpose().map_err(unreadable)?;
        let words = serde_json::to_string(&answer).map_err(unreadable)?;
        let patterns = match answer {
            Answer::Always { patterns } => patterns,
            Answer::Once
            | Answer::Granted
            | Answer::Reject { .. }
            | Answer::Answers { .. }
            | Answer::Dismissed
            | Answer::Expired => Vec::new(),
        };
        self.at_head(org, &ask.to_string(), move |connection| {
            Box::pin(async move {
                let mut mint = IdMint::after(Stamp::default(), now);
                let event = EventId::mint(&mut mint);
                let row = sqlx::query!(
                    r#"SELECT outcome AS "outcome!", seq, session, location
                           FROM answer_ask($1, $2, $3, $4, $5, $6, $7, $8)"#,
                    org.0,
                    ask.as_str(),
                    words,
                    by,
                    &patterns,
                    event.as_str(),
                    mint.last().0,
                    now,
                )
                .fetch_one(&mut *connection)
                .await?;
                match (row.outcome.as_str(), row.seq, row.session, row.location) {
                    ("answered" | "same", Some(seq), Some(session), Some(location)) => {
                        let (session, location) = (session.parse()?, location.parse()?);
                        let session = SessionRef { org, location, session };
                        Ok(Answering::Answered { seq: Seq(seq), session })
                    }
                    ("conflict", ..) => Ok(Answering::Conflict),
                    ("gone", ..) => Ok(Answering::Gone),
                    ("missing", ..) => Err(StoreError::NotFound),
                    (other, ..) => Err(StoreError::Unreadable(format!("outcome {other}"))),
                }
            })
        })
        .await
    }

    /// The permissions that people have saved for a session's project.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn saved_permissions(
        &self,
        org: OrgId,
        session: &SessionId,
    ) -> Result<Vec<SavedPermission>, StoreError> {
        let session = session.clone();
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query_as!(
                    SavedPermission,
                    "SELECT v.action, v.pattern FROM session s
                     JOIN saved_permission v ON v.org_id = s.org_id AND v.project_id = s.project_id
                     WHERE s.org_id = $1 AND s.id = $2",
                    org.0,
                    session.as_str(),
                )
                .fetch_all(&mut *connection)
                .await?;
                Ok(rows)
            })
        })
        .await
    }

    /// The saved permissions of an organisation, or those of one project, the newest first; at most [`MAX_ASKS`].
    ///
    /// # Errors
    /// When the database fails.
    pub async fn kept_permissions(
        &self,
        org: OrgId,
        project: Option<ProjectId>,
    ) -> Result<Vec<KeptPermission>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    "SELECT id, project_id, action, pattern, by_key, saved_ms FROM saved_permission
                     WHERE org_id = $1 AND ($2::text IS NULL OR project_id = $2) ORDER BY saved_ms DESC, id LIMIT $3",
                    org.0,
                    project.as_ref().map(ProjectId::as_str),
                    MAX_ASKS,
                )
                .fetch_all(&mut *connection)
                .await?;
                let read = rows.into_iter().map(|row| {
                    let project = row.project_id.parse()?;
                    Ok(KeptPermission {
                        id: row.id,
                        project,
                        saved: SavedPermission { action: row.action, pattern: row.pattern },
                        by: row.by_key.map(Author::of_key),
                        saved_ms: row.saved_ms,
                    })
                });
                read.collect()
            })
        })
        .await
    }

    /// Takes a saved permission back: later calls are asked about again. Returns whether there was one.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn forget_permission(&self, org: OrgId, id: String) -> Result<bool, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let done = sqlx::query!(
                    "DELETE FROM saved_permission WHERE org_id = $1 AND id = $2",
                    org.0,
                    id,
                )
                .execute(&mut **tx)
                .await?;
                Ok(done.rows_affected() > 0)
            })
        })
        .await
    }

    /// Pending asks that saved permissions cover: they may be answered with [`Answer::Granted`].
    ///
    /// # Errors
    /// When the database fails.
    pub async fn covered_asks(&self, org: OrgId) -> Result<Vec<AskId>, StoreError> {
        self.lane(org)
            .run(move |connection| {
                Box::pin(async move {
                    let ids =
                        sqlx::query_scalar!(r#"SELECT id AS "id!" FROM covered_asks($1)"#, org.0)
                            .fetch_all(&mut *connection)
                            .await?;
                    ids.into_iter().map(|id| Ok(id.parse()?)).collect()
                })
            })
            .await
    }

    /// Asks of all organisations that nobody has answered in time, at most `limit`. They may be answered with
    /// [`Answer::Expired`].
    ///
    /// # Errors
    /// When the database fails.
    pub async fn due_asks(
        &self,
        now: TimestampMs,
        limit: i64,
    ) -> Result<Vec<(OrgId, AskId)>, StoreError> {
        self.sched()
            .run(move |connection| {
                Box::pin(async move {
                    let rows = sqlx::query!(
                        "SELECT org_id, id FROM ask WHERE status = 'pending' AND expires_ms <= $1 LIMIT $2",
                        now,
                        limit,
                    )
                    .fetch_all(&mut *connection)
                    .await?;
                    let read = |org: Uuid, id: &str| Ok((OrgId(org), id.parse()?));
                    rows.into_iter().map(|row| read(row.org_id, &row.id)).collect()
                })
            })
            .await
    }
}

/// Returns the asks of an organisation that wait, those that expire first. It reads no more of them than it returns.
async fn first_asks(connection: &mut PgConnection, org: OrgId) -> Result<Vec<String>, StoreError> {
    let ids = sqlx::query_scalar!(
        "SELECT id FROM ask WHERE org_id = $1 AND status = 'pending' ORDER BY expires_ms LIMIT $2",
        org.0,
        MAX_ASKS,
    );
    Ok(ids.fetch_all(connection).await?)
}

async fn asks_of_session(
    connection: &mut PgConnection,
    org: OrgId,
    session: &SessionId,
) -> Result<Vec<String>, StoreError> {
    let ids = sqlx::query_scalar!(
        "SELECT a.id FROM session s JOIN ask a ON a.org_id = s.org_id AND a.incarnation = s.incarnation
         WHERE s.org_id = $1 AND s.id = $2 AND a.status = 'pending' LIMIT $3",
        org.0,
        session.as_str(),
        MAX_ASKS,
    );
    Ok(ids.fetch_all(connection).await?)
}

/// Returns the asks with these ids, the oldest first.
async fn asks(
    connection: &mut PgConnection,
    org: OrgId,
    ids: &[String],
) -> Result<Vec<AskRow>, StoreError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows = sqlx::query!(
        r#"SELECT s.id AS session, s.location_id, s.directory, s.project_id, a.status, t.message_id, e.version, e.payload, e.time_ms
           FROM ask a
               JOIN session s ON s.org_id = a.org_id AND s.incarnation = a.incarnation
               JOIN tool_result t ON t.org_id = a.org_id AND t.id = a.call_id
               JOIN session_event e ON e.org_id = a.org_id AND e.incarnation = a.incarnation
                   AND e.seq = a.asked_seq
           WHERE a.org_id = $1 AND a.id = ANY($2)
           ORDER BY e.time_ms, a.id"#,
        org.0,
        ids,
    )
    .fetch_all(connection)
    .await?;
    let read = rows.into_iter().map(|row| {
        let event = SessionEvent::read("tool.asked", row.version, &row.payload)?;
        let SessionEvent::ToolAsked(asked) = event else {
            return Err(StoreError::Unreadable("an ask of another event".into()));
        };
        let (session, location) = (row.session.parse()?, row.location_id.parse()?);
        Ok(AskRow {
            session: SessionRef { org, location, session },
            message: row.message_id.parse()?,
            directory: row.directory,
            project: row.project_id.parse()?,
            is_pending: AskStatus::read(&row.status) == Some(AskStatus::Pending),
            asked,
            asked_ms: row.time_ms,
        })
    });
    read.collect()
}
