//! Queries of sweeps, across tenants, through the role that can read ids and nothing else.

use domain::{
    Claim, FencingToken, LocationRef, OrgId, Seq, SessionId, SessionIncarnation, SessionRef,
};
use uuid::Uuid;

use crate::{Store, StoreError};

/// A session that waits for a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadySession {
    /// The session.
    pub session: SessionRef,
}

/// The head of a session, which a worker or a gateway compares with its own knowledge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadState {
    /// The organisation.
    pub org: OrgId,
    /// The session.
    pub session: SessionId,
    /// Tells it from an earlier session with the same id.
    pub incarnation: SessionIncarnation,
    /// The claim now.
    pub claim: Claim,
    /// The newest interrupt.
    pub interrupt_seq: Seq,
    /// The highest number of the log.
    pub seq: Seq,
}

impl Store {
    /// Makes `token` the fence of its Location and fences every drain of an earlier holder: a new
    /// token's first act. Nothing starts there before it returns. The fence before it: 0 if nobody has been
    /// there, `token` if it was the fence already. One round trip.
    ///
    /// # Errors
    /// [`StoreError::Superseded`] when a higher token has been here.
    pub async fn raise_fence(
        &self,
        at: LocationRef,
        token: FencingToken,
    ) -> Result<FencingToken, StoreError> {
        self.drain_lane()
            .run(move |connection| {
                Box::pin(async move {
                    let before = sqlx::query_scalar!(
                        "SELECT take_fence($1, $2, $3)",
                        at.org.0,
                        at.location.as_str(),
                        token.0,
                    )
                    .fetch_one(&mut *connection)
                    .await?;
                    before.map(FencingToken).ok_or(StoreError::Superseded)
                })
            })
            .await
    }

    /// Whether keys of more than one organisation are in use: whoever has one is not alone here.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn has_many_organisations(&self) -> Result<bool, StoreError> {
        self.sched().run(|connection| Box::pin(async move {
            let many = sqlx::query_scalar!(
                r#"SELECT EXISTS (SELECT FROM api_key WHERE org_id <> (SELECT org_id FROM api_key LIMIT 1)) AS "many!""#,
            );
            Ok(many.fetch_one(connection).await?)
        }))
        .await
    }

    /// One ready session of each Location that has any, of all tenants in the order of organisation and Location,
    /// beginning after `after`, at most `limit`. Whoever holds the Location finds the others.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn ready_locations(
        &self,
        after: Option<LocationRef>,
        limit: i64,
    ) -> Result<Vec<ReadySession>, StoreError> {
        self.sched()
            .run(move |connection| {
                Box::pin(async move {
                    let (org, location) = match &after {
                        Some(at) => (at.org.0, at.location.as_str()),
                        None => (Uuid::nil(), ""),
                    };
                    let rows = sqlx::query!(
                "SELECT DISTINCT ON (org_id, location_id) org_id, location_id, id FROM session_head
                 WHERE ready AND (org_id, location_id) > ($1, $2)
                 ORDER BY org_id, location_id, id LIMIT $3",
                org,
                location,
                limit,
            )
                    .fetch_all(&mut *connection)
                    .await?;
                    rows.into_iter()
                        .map(|row| ready(row.org_id, &row.location_id, &row.id))
                        .collect()
                })
            })
            .await
    }

    /// Ready sessions of the Locations that a worker holds, at most `limit`: organisations in turn, and an
    /// organisation's Locations in turn, so that none fills the answer while another waits.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn ready_sessions_at(
        &self,
        held: &[LocationRef],
        limit: i64,
    ) -> Result<Vec<ReadySession>, StoreError> {
        let orgs: Vec<Uuid> = held.iter().map(|at| at.org.0).collect();
        let locations: Vec<String> = held.iter().map(|at| at.location.to_string()).collect();
        self.sched()
            .run(move |connection| {
                Box::pin(async move {
            let rows = sqlx::query!(
                r#"SELECT org_id AS "org_id!", location_id AS "location_id!", id FROM (
                     SELECT held.org_id, held.location_id, h.id, row_number()
                         OVER (PARTITION BY held.org_id ORDER BY h.place, held.location_id) AS turn
                     FROM unnest($1::uuid[], $2::text[]) AS held (org_id, location_id)
                     CROSS JOIN LATERAL (
                         SELECT of.id, row_number() OVER (ORDER BY of.id) AS place FROM session_head of
                         WHERE of.ready AND of.org_id = held.org_id AND of.location_id = held.location_id
                         ORDER BY of.id LIMIT $3) AS h
                 ) AS fair ORDER BY turn LIMIT $3"#,
                &orgs,
                &locations,
                limit,
            )
            .fetch_all(&mut *connection)
            .await?;
            rows.into_iter().map(|row| ready(row.org_id, &row.location_id, &row.id)).collect()
                })
            })
            .await
    }

    /// The heads of the sessions named, in one query: for a worker's look at what it drains, and a
    /// gateway's at what it follows.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn heads(&self, of: &[(OrgId, SessionId)]) -> Result<Vec<HeadState>, StoreError> {
        let orgs: Vec<Uuid> = of.iter().map(|(org, _)| org.0).collect();
        let sessions: Vec<String> = of.iter().map(|(_, session)| session.to_string()).collect();
        self.sched()
            .run(move |connection| {
                Box::pin(async move {
                    let rows = sqlx::query!(
                        "SELECT h.org_id, h.id, h.incarnation, h.claim, h.interrupt_seq, h.next_seq
                 FROM unnest($1::uuid[], $2::text[]) AS asked (org_id, id)
                 JOIN session_head h ON h.org_id = asked.org_id AND h.id = asked.id",
                        &orgs,
                        &sessions,
                    )
                    .fetch_all(&mut *connection)
                    .await?;
                    rows.into_iter()
                        .map(|row| {
                            Ok(HeadState {
                                org: OrgId(row.org_id),
                                session: row.id.parse()?,
                                incarnation: SessionIncarnation(row.incarnation),
                                claim: Claim(row.claim),
                                interrupt_seq: Seq(row.interrupt_seq),
                                seq: Seq(row.next_seq - 1),
                            })
                        })
                        .collect()
                })
            })
            .await
    }
}

fn ready(org: Uuid, location: &str, session: &str) -> Result<ReadySession, StoreError> {
    let session =
        SessionRef { org: OrgId(org), location: location.parse()?, session: session.parse()? };
    Ok(ReadySession { session })
}
