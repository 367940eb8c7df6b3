use domain::{
    ControlAdmitted, EventId, Feature, IdMint, LocationId, OrgId, Seq, SessionId, TimestampMs,
};

use crate::inbox::control_kind;
use crate::{Store, StoreError};

/// A control that asks to be admitted.
#[derive(Debug, Clone)]
pub struct NewControl {
    /// The session.
    pub session: SessionId,
    /// The control; its id is fixed before the statement, and reused on a retry of it.
    pub control: ControlAdmitted,
    /// The gateway's time.
    pub now: TimestampMs,
}

/// A control that is durable.
#[derive(Debug, Clone)]
pub struct AdmittedControl {
    /// How it came to be.
    pub admission: ControlAdmission,
    /// Its place in the session's log.
    pub seq: Seq,
    /// Where the session runs.
    pub location: LocationId,
    /// When it was first admitted.
    pub admitted_ms: TimestampMs,
    /// The control as it was first admitted.
    pub control: ControlAdmitted,
}

/// How a control came to be admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlAdmission {
    /// By this call.
    First,
    /// By an earlier one with the same session, id, control and delivery.
    Retry,
    /// Another Compaction waits already: that one is returned. It is awake now, if this one was to wake.
    Pending,
}

impl Store {
    /// Admits a control at its place in the inbox: one statement, one commit. At most one
    /// Compaction waits in a session.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session, or the Location of a Move; [`StoreError::Conflict`] when the id names something
    /// else; [`StoreError::Busy`] when a Revert or its end finds a session that is not idle or in which prompts
    /// wait; [`StoreError::Feature`].
    pub async fn admit_control(
        &self,
        org: OrgId,
        new: NewControl,
    ) -> Result<AdmittedControl, StoreError> {
        self.require(Feature::Controls).await?;
        match self.admit_control_once(org, new.clone()).await {
            // The id was just used at another session, and is found there now.
            Err(error) if error.is_duplicate() => self.admit_control_once(org, new).await,
            admitted => admitted,
        }
    }

    async fn admit_control_once(
        &self,
        org: OrgId,
        new: NewControl,
    ) -> Result<AdmittedControl, StoreError> {
        self.at_head(org, &new.session.clone().to_string(), move |connection| {
            Box::pin(async move {
                let stamp = new.control.message.stamp(new.now).unwrap_or_default();
                let mut mint = IdMint::after(stamp, new.now);
                let event = EventId::mint(&mut mint);
                let payload = serde_json::to_string(&new.control)
                    .map_err(|error| StoreError::Unreadable(error.to_string()))?;
                let row = sqlx::query!(
                    r#"SELECT outcome AS "outcome!", seq, location, admitted_ms, payload
                       FROM admit_control($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"#,
                    org.0,
                    new.session.as_str(),
                    new.control.message.as_str(),
                    control_kind(&new.control.control),
                    new.control.delivery.as_str(),
                    new.control.digest,
                    new.control.wake,
                    event.as_str(),
                    mint.last().0,
                    new.now,
                    payload,
                )
                .fetch_one(&mut *connection)
                .await?;
                let admission = match row.outcome.as_str() {
                    "admitted" => ControlAdmission::First,
                    "retry" => ControlAdmission::Retry,
                    "pending" => ControlAdmission::Pending,
                    "conflict" => {
                        return Err(StoreError::Conflict { what: "a message with this id" });
                    }
                    "busy" => return Err(StoreError::Busy { session: new.session }),
                    "full" => return Err(StoreError::InboxFull { session: new.session }),
                    "missing" | "nowhere" => return Err(StoreError::NotFound),
                    other => return Err(StoreError::Unreadable(format!("outcome {other}"))),
                };
                let (Some(seq), Some(location), Some(admitted_ms), Some(payload)) =
                    (row.seq, row.location, row.admitted_ms, row.payload)
                else {
                    return Err(StoreError::Unreadable("an admission without its row".into()));
                };
                Ok(AdmittedControl {
                    admission,
                    seq: Seq(seq),
                    location: location.parse()?,
                    admitted_ms,
                    control: serde_json::from_str(&payload)
                        .map_err(|error| StoreError::Unreadable(error.to_string()))?,
                })
            })
        })
        .await
    }
}
