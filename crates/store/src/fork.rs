use domain::{
    EventId, Feature, IdMint, OrgId, SessionCreated, SessionEvent, SessionForked, SessionId, Stamp,
    TimestampMs,
};

use crate::cluster::created_with;
use crate::session::TRIES;
use crate::{Creation, Store, StoreError};

/// A session that begins with the conversation of another.
#[derive(Debug, Clone)]
pub struct NewFork {
    /// Its id.
    pub id: SessionId,
    /// Its first event.
    pub created: SessionCreated,
    /// Its second event. `copied` is the number of `events`.
    pub forked: SessionForked,
    /// The copied events, with new ids and their own times.
    pub events: Vec<(TimestampMs, SessionEvent)>,
    /// The highest stamp of those ids.
    pub last_id: Stamp,
    /// The gateway's time.
    pub now: TimestampMs,
}

impl Store {
    /// Creates a Fork with all that it begins with: one statement, one commit. The other session is not
    /// locked, and need not exist afterwards. [`Creation::Exists`] when its id is a Fork of the same session:
    /// an exact retry; [`Creation::Orphan`] when the other has no log up to `forked.through`.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the id is another session's; [`StoreError::NotFound`] without the Location;
    /// [`StoreError::Feature`].
    pub async fn fork(&self, org: OrgId, new: NewFork) -> Result<Creation, StoreError> {
        self.require(Feature::Controls).await?;
        if let Some(feature) = created_with(&new.created) {
            self.require(feature).await?;
        }
        let id = new.id.to_string();
        self.long_at_head(org, &id, move |connection| {
            Box::pin(async move {
                let NewFork { id, created, forked, events, last_id, now } = new;
                let location = created.location.clone();
                let (parent, through) = (forked.parent.clone(), forked.through);
                let copied = i64::try_from(events.len()).unwrap_or(i64::MAX);
                if forked.copied != copied {
                    let said = format!("a fork of {} events with {copied}", forked.copied);
                    return Err(StoreError::Unreadable(said));
                }
                let first: [(TimestampMs, SessionEvent); 2] =
                    [(now, created.into()), (now, forked.into())];
                let events: Vec<_> = first.into_iter().chain(events).collect();
                let mut mint = IdMint::after(last_id, now);
                let ids: Vec<String> =
                    events.iter().map(|_| EventId::mint(&mut mint).to_string()).collect();
                let kinds: Vec<String> =
                    events.iter().map(|(_, event)| event.kind().to_owned()).collect();
                let versions: Vec<i32> = events.iter().map(|(_, event)| event.version()).collect();
                let times: Vec<i64> = events.iter().map(|(time, _)| *time).collect();
                // Each event goes as its text comes: together they may be large.
                let payloads: Vec<String> =
                    events.into_iter().map(|(_, event)| event.payload()).collect();
                for _ in 0..TRIES {
                    let outcome = sqlx::query_scalar!(
                        r#"SELECT fork_session($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
                               AS "outcome!""#,
                        org.0,
                        id.as_str(),
                        parent.as_str(),
                        through.0,
                        location.as_str(),
                        mint.last().0,
                        &ids,
                        &kinds,
                        &versions,
                        &times,
                        &payloads,
                    )
                    .fetch_one(&mut *connection)
                    .await?;
                    match outcome.as_str() {
                        "created" => return Ok(Creation::Created),
                        "exists" => return Ok(Creation::Exists),
                        "orphan" => return Ok(Creation::Orphan),
                        "nowhere" => return Err(StoreError::NotFound),
                        "raced" => {} // found as it was made, the next time
                        _ => break,
                    }
                }
                Err(StoreError::Conflict { what: "a session with this id" })
            })
        })
        .await
    }
}
