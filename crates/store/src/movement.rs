//! The write with which a session leaves its Location.

use domain::{EventId, IdMint, Seq, SessionEvent, SessionMoved, TimestampMs};

use crate::{Append, DrainWrite, Head, StoreError, Written};

impl DrainWrite {
    /// Writes and commits what ends a drain here, with the session at its new Location: both Locations' locks,
    /// then the head. What is based on [`Written::Next`] afterwards is refused: the claim has passed on.
    pub(crate) async fn commit_move(
        self,
        mint: &mut IdMint,
        now: TimestampMs,
        append: Append<'_>,
    ) -> Result<Written, StoreError> {
        let moved = append.events.iter().rev().find_map(moved).cloned();
        // Nothing is sent to a model here, so no request has components.
        let moved = moved.filter(|_| append.components.is_empty());
        let moved = moved.ok_or_else(|| StoreError::Unreadable("a move that is not one".into()))?;
        let ids: Vec<String> =
            append.events.iter().map(|_| EventId::mint(mint).to_string()).collect();
        let kinds: Vec<String> =
            append.events.iter().map(|event| event.kind().to_owned()).collect();
        let versions: Vec<i32> = append.events.iter().map(SessionEvent::version).collect();
        let payloads: Vec<String> = append.events.iter().map(SessionEvent::payload).collect();
        let (promoted, end, progress) = (append.promoted, append.end, append.progress);
        let stamp = mint.last();
        // Locations are locked before heads.
        let Self { store, session, starts, seen, head, .. } = self.release().await?;
        store
            .clone()
            .drain_lane()
            .run(move |connection| {
                Box::pin(async move {
                    let outcome = sqlx::query_scalar!(
                        r#"SELECT move_session($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
                           $17) AS "outcome!""#,
                        session.org.0,
                        session.session.as_str(),
                        session.location.as_str(),
                        moved.to.as_str(),
                        moved.tree.as_ref().map(domain::SnapshotTree::as_str),
                        starts.map(|token| token.0),
                        seen.0,
                        head.next_seq.0,
                        promoted,
                        stamp.0,
                        end.as_str(),
                        progress,
                        now,
                        &ids,
                        &kinds,
                        &versions,
                        &payloads,
                    )
                    .fetch_one(&mut *connection)
                    .await?;
                    match outcome.as_str() {
                        "written" => {}
                        "stale" => return Ok(Written::Stale),
                        "superseded" => return Ok(Written::Superseded),
                        "fenced" => {
                            let session = session.session;
                            return Err(StoreError::Fenced { session, held: seen });
                        }
                        "nowhere" => return Err(StoreError::NotFound),
                        other => return Err(StoreError::Unreadable(format!("outcome {other}"))),
                    }
                    let count = i64::try_from(ids.len()).unwrap_or(i64::MAX);
                    let head = Head {
                        next_seq: Seq(head.next_seq.0 + count),
                        last_id: head.last_id.max(stamp),
                        interrupt_seq: head.interrupt_seq,
                    };
                    let (locked, starts) = (None, None);
                    let next = Self { store, locked, session, starts, seen, head };
                    Ok(Written::Next(Box::new(next)))
                })
            })
            .await
    }
}

fn moved(event: &SessionEvent) -> Option<&SessionMoved> {
    if let SessionEvent::SessionMoved(moved) = event { Some(moved) } else { None }
}
