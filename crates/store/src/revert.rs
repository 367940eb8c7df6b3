use domain::{EventId, Feature, IdMint, OrgId, Seq, SessionId, Stamp, TimestampMs};

use crate::{InboxChange, Store, StoreError};

/// Ids that a commit of a Revert is given at first: for itself, and for what it usually cancels.
const USUAL: i64 = 4;

/// Event ids for what the database writes on its own: as many as it has asked for.
pub(crate) fn spare(mint: &mut IdMint, count: i64) -> Vec<String> {
    (0..count).map(|_| EventId::mint(mint).to_string()).collect()
}

impl Store {
    /// Commits the staged Revert of an idle session, and cancels the synthetic input that waited for its end.
    /// [`InboxChange::Unchanged`] when nothing is staged. One statement, one commit.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session; [`StoreError::Busy`] while it has work; [`StoreError::Feature`].
    pub async fn commit_revert(
        &self,
        org: OrgId,
        session: SessionId,
        now: TimestampMs,
    ) -> Result<InboxChange, StoreError> {
        self.require(Feature::Controls).await?;
        self.at_head(org, &session.to_string(), move |connection| {
            Box::pin(async move {
                let mut mint = IdMint::after(Stamp::default(), now);
                let mut needed = USUAL;
                loop {
                    let row = sqlx::query!(
                        r#"SELECT outcome AS "outcome!", seq, location
                               FROM commit_revert($1, $2, $3, $4, $5)"#,
                        org.0,
                        session.as_str(),
                        &spare(&mut mint, needed),
                        mint.last().0,
                        now,
                    )
                    .fetch_one(&mut *connection)
                    .await?;
                    return match (row.outcome.as_str(), row.seq, row.location) {
                        ("committed", Some(seq), Some(location)) => {
                            Ok(InboxChange::Done { seq: Seq(seq), location: location.parse()? })
                        }
                        ("staged", Some(more), _) if more > needed => {
                            needed = more; // only synthetic input that comes meanwhile raises it
                            continue;
                        }
                        ("none", ..) => Ok(InboxChange::Unchanged),
                        ("busy", ..) => Err(StoreError::Busy { session }),
                        ("missing", ..) => Err(StoreError::NotFound),
                        (other, ..) => Err(StoreError::Unreadable(format!("outcome {other}"))),
                    };
                }
            })
        })
        .await
    }
}
