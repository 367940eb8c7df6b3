//! Inputs that wait in a session's inbox, and the changes that are possible there.

use domain::{
    Control, ControlAdmitted, Delivery, LocationId, MessageId, OrgId, PromptAdmitted, Seq,
    SessionId, TimestampMs,
};

use crate::page::{MAX_ROWS, PAGE_BYTES};
use crate::{Page, Store, StoreError};

/// The most inputs of an inbox. `inbox_has_room.sql` has the same bounds.
pub const MAX_INBOX_INPUTS: i64 = 1_000;
/// The most bytes of an inbox: of its inputs' events, as they are stored.
pub const MAX_INBOX_BYTES: i64 = 16 << 20;

/// An input that is admitted, and neither history nor cancelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxRow {
    /// Its id.
    pub id: MessageId,
    /// How it joins running work, as it was changed last.
    pub delivery: Delivery,
    /// Its place in the log, which is its place in the inbox.
    pub seq: Seq,
    /// When it was admitted.
    pub admitted_ms: TimestampMs,
    /// Its kind.
    pub item: InboxItem,
}

/// An input that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InboxItem {
    /// A prompt, of a user or synthetic.
    Prompt(PromptAdmitted),
    /// A control.
    Control(ControlAdmitted),
}

/// The outcome of a change of the inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InboxChange {
    /// It is durable.
    Done {
        /// Its place in the log.
        seq: Seq,
        /// Where the session runs.
        location: LocationId,
    },
    /// There was nothing to change; nothing changed.
    Unchanged,
}

/// The word for a control in `session_input.kind`.
pub(crate) fn control_kind(control: &Control) -> &'static str {
    match control {
        Control::Compaction => "compaction",
        Control::Move { .. } => "move",
        Control::Revert { .. } => "revert",
        Control::Unrevert => "unrevert",
    }
}

/// The word for a prompt in `session_input.kind`.
pub(crate) fn prompt_kind(prompt: &PromptAdmitted) -> &'static str {
    if prompt.synthetic.is_some() { "synthetic" } else { "prompt" }
}

impl Store {
    /// The inputs that wait in a session's inbox after `after`, in the order of admission: a page of at most `limit` inputs and
    /// about 8 MiB.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session.
    pub async fn inbox(
        &self,
        org: OrgId,
        session: SessionId,
        after: Seq,
        limit: i64,
    ) -> Result<Page<InboxRow>, StoreError> {
        let limit = limit.min(MAX_ROWS);
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    r#"SELECT i.id AS "id?", i.kind AS "kind?", i.delivery AS "delivery?",
                           i.payload AS "payload?", i.admitted_seq::bigint AS "admitted_seq?",
                           i.admitted_ms AS "admitted_ms?"
                       FROM session_head h LEFT JOIN (
                           SELECT w.*, sum(octet_length(w.payload)) OVER (ORDER BY w.admitted_seq
                               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
                           FROM (SELECT n.*, e.payload FROM session_input n JOIN session_event e
                                   ON e.incarnation = n.incarnation AND e.seq = n.admitted_seq
                               WHERE n.org_id = $1 AND n.status = 'admitted' AND n.admitted_seq > $3::bigint AND n.incarnation =
                                   (SELECT incarnation FROM session_head WHERE org_id = $1 AND id = $2)
                               ORDER BY n.admitted_seq LIMIT $4) AS w) AS i
                           ON coalesce(i.bytes_before, 0) < page_bytes()
                       WHERE h.org_id = $1 AND h.id = $2 ORDER BY i.admitted_seq"#,
                    org.0,
                    session.as_str(),
                    after.0,
                    limit,
                )
                .fetch_all(&mut *connection)
                .await?;
                if rows.is_empty() {
                    return Err(StoreError::NotFound);
                }
                let (mut inbox, mut bytes) = (Vec::new(), 0);
                for row in rows {
                    let (Some(id), Some(kind), Some(payload)) = (row.id, row.kind, row.payload)
                    else {
                        continue; // the one row of an empty inbox
                    };
                    bytes += payload.len();
                    inbox.push(InboxRow {
                        id: id.parse()?,
                        delivery: delivery(row.delivery.as_deref())?,
                        seq: Seq(row.admitted_seq.unwrap_or_default()),
                        admitted_ms: row.admitted_ms.unwrap_or_default(),
                        item: item(&kind, &payload)?,
                    });
                }
                Ok(Page::of(inbox, limit, bytes, PAGE_BYTES))
            })
        })
        .await
    }

    /// Takes an input out of the inbox, if it is still there. One statement, one commit.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session.
    pub async fn cancel_input(
        &self,
        org: OrgId,
        session: SessionId,
        input: MessageId,
        now: TimestampMs,
    ) -> Result<InboxChange, StoreError> {
        self.log_one((org, &session.clone()), now, move |connection, minted| {
            Box::pin(async move {
                let row = sqlx::query!(
                    r#"SELECT outcome AS "outcome!", seq, location
                           FROM cancel_input($1, $2, $3, $4, $5, $6)"#,
                    org.0,
                    session.as_str(),
                    input.as_str(),
                    minted.event.as_str(),
                    minted.stamp,
                    now,
                )
                .fetch_one(&mut *connection)
                .await?;
                change(&row.outcome, row.seq, row.location)
            })
        })
        .await
    }

    /// Changes how a pending input joins running work; to steer wakes the session for it. Its place in
    /// the inbox stays. One statement, one commit.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session or an input of it with this id;
    /// [`StoreError::Conflict`] when the input does not wait any more, or has this delivery.
    pub async fn change_delivery(
        &self,
        org: OrgId,
        session: SessionId,
        input: MessageId,
        to: Delivery,
        now: TimestampMs,
    ) -> Result<InboxChange, StoreError> {
        self.log_one((org, &session.clone()), now, move |connection, minted| {
            Box::pin(async move {
                let row = sqlx::query!(
                    r#"SELECT outcome AS "outcome!", seq, location
                           FROM change_delivery($1, $2, $3, $4, $5, $6, $7)"#,
                    org.0,
                    session.as_str(),
                    input.as_str(),
                    to.as_str(),
                    minted.event.as_str(),
                    minted.stamp,
                    now,
                )
                .fetch_one(&mut *connection)
                .await?;
                change(&row.outcome, row.seq, row.location)
            })
        })
        .await
    }

    /// Wakes a session for what waits, and opens an idle one, so that a prompt without an answer is taken
    /// up again. A session that runs with an empty inbox is left as it is. One statement, one commit.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session.
    pub async fn wake_session(
        &self,
        org: OrgId,
        session: SessionId,
        now: TimestampMs,
    ) -> Result<InboxChange, StoreError> {
        self.log_one((org, &session.clone()), now, move |connection, minted| {
            Box::pin(async move {
                let row = sqlx::query!(
                    r#"SELECT outcome AS "outcome!", seq, location
                           FROM wake_session($1, $2, $3, $4, $5)"#,
                    org.0,
                    session.as_str(),
                    minted.event.as_str(),
                    minted.stamp,
                    now,
                )
                .fetch_one(&mut *connection)
                .await?;
                change(&row.outcome, row.seq, row.location)
            })
        })
        .await
    }
}

/// The answer of a function that changes an inbox.
fn change(
    outcome: &str,
    seq: Option<i64>,
    location: Option<String>,
) -> Result<InboxChange, StoreError> {
    match outcome {
        "cancelled" | "changed" | "woken" => {
            let (Some(seq), Some(location)) = (seq, location) else {
                return Err(StoreError::Unreadable("a change without its number".into()));
            };
            Ok(InboxChange::Done { seq: Seq(seq), location: location.parse()? })
        }
        "gone" | "running" => Ok(InboxChange::Unchanged),
        "conflict" => Err(StoreError::Conflict { what: "an input in another state" }),
        "missing" => Err(StoreError::NotFound),
        other => Err(StoreError::Unreadable(format!("outcome {other}"))),
    }
}

fn delivery(word: Option<&str>) -> Result<Delivery, StoreError> {
    match word {
        Some("steer") => Ok(Delivery::Steer),
        Some("queue") => Ok(Delivery::Queue),
        other => Err(StoreError::Unreadable(format!("delivery {other:?}"))),
    }
}

fn item(kind: &str, payload: &str) -> Result<InboxItem, StoreError> {
    let item = match kind {
        "prompt" | "synthetic" => serde_json::from_str(payload).map(InboxItem::Prompt),
        _ => serde_json::from_str(payload).map(InboxItem::Control),
    };
    item.map_err(|error| StoreError::Unreadable(format!("an input of kind {kind}: {error}")))
}
