//! The write with which a session leaves its Location.

use domain::{EventId, SessionEvent, SessionMoved};
use sqlx::PgConnection;

use crate::write::{Write, WriteOutcome};
use crate::{Append, StoreError};

/// Where the write takes the session.
///
/// # Errors
/// When it does not: nothing is sent to a model with a move, so no request has components.
pub(crate) fn of(append: &Append<'_>) -> Result<SessionMoved, StoreError> {
    let moved = append.events.iter().rev().find_map(moved).cloned();
    let moved = moved.filter(|_| append.components.is_empty());
    moved.ok_or_else(|| StoreError::Unreadable("a move that is not one".into()))
}

fn moved(event: &SessionEvent) -> Option<&SessionMoved> {
    if let SessionEvent::SessionMoved(moved) = event { Some(moved) } else { None }
}

/// Writes what ends a drain here, with the session at its new Location: both Locations' locks, then the head. A write
/// that is based on it afterwards is refused: the claim has passed on.
///
/// # Errors
/// [`StoreError::NotFound`] when there is no Location to move to.
pub(crate) async fn write(
    write: &Write,
    moved: &SessionMoved,
    connection: &mut PgConnection,
) -> Result<WriteOutcome, StoreError> {
    let outcome = sqlx::query_scalar!(
        r#"SELECT move_session($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
                           $17, $18) AS "outcome!""#,
        write.session.org.0,
        write.session.session.as_str(),
        write.session.location.as_str(),
        moved.to.as_str(),
        moved.tree.as_ref().map(domain::SnapshotTree::as_str),
        write.starts.map(|token| token.0),
        write.seen.0,
        write.first.0,
        write.promoted,
        write.stamp.0,
        write.end.as_str(),
        write.progress,
        write.now,
        &write.ids,
        &write.kinds,
        &write.versions,
        &write.payloads,
        write.after.as_ref().map(EventId::as_str),
    )
    .fetch_one(connection)
    .await?;
    match outcome.as_str() {
        "written" => Ok(WriteOutcome::Written),
        "stale" => Ok(WriteOutcome::Stale),
        "superseded" => Ok(WriteOutcome::Superseded),
        "fenced" => Ok(WriteOutcome::Fenced),
        "nowhere" => Err(StoreError::NotFound),
        other => Err(StoreError::Unreadable(format!("outcome {other}"))),
    }
}
