//! Rows of a Location's files: the packs of its snapshots, the files that it began with, and the changes of sessions.

use domain::{
    FencingToken, FileChange, LocationId, LocationRef, MessageId, OrgId, Seq, SessionId,
    SnapshotTree, TimestampMs, TurnId,
};

use crate::page::{MAX_ROWS, PAGE_BYTES};
use crate::tenant::missing;
use crate::{Page, Store, StoreError};

/// A Workspace Snapshot of a Location, whose pack is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackRow {
    /// The token under which it was captured.
    pub token: FencingToken,
    /// Its number under that token; a later one is greater.
    pub ordinal: i64,
    /// The files.
    pub tree: SnapshotTree,
    /// The tree before it; `None` for the Location's first.
    pub parent: Option<SnapshotTree>,
    /// The object that holds what is new in the tree; `None` when earlier ones have all of it.
    pub pack: Option<String>,
    /// Bytes of that object.
    pub bytes: i64,
    /// When its event was written.
    pub created_ms: TimestampMs,
}

/// The files that a Location began with: a Fork's or a Move's own copy of another's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seed {
    /// Whose files; its packs have them.
    pub location: LocationId,
    /// Which.
    pub tree: SnapshotTree,
}

/// The changes of a session's files between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeRow {
    /// Its place in the log.
    pub seq: Seq,
    /// The turn whose calls were the reason for the snapshot.
    pub turn: Option<TurnId>,
    /// No call was the reason for it.
    pub base: bool,
    /// The files after it.
    pub tree: SnapshotTree,
    /// The files before it; `None` for the Location's first.
    pub parent: Option<SnapshotTree>,
    /// The files that differ, as its event has them.
    pub files: Vec<FileChange>,
    /// How many more files do.
    pub more: i64,
}

impl Store {
    /// Every Workspace Snapshot of a Location, in the order in which they were captured: the last one is the
    /// newest. They stay when sessions are deleted, and go with the Location.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn workspace_packs(&self, at: LocationRef) -> Result<Vec<PackRow>, StoreError> {
        self.read(at.org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    "SELECT token, ordinal, tree, parent, pack, bytes, created_ms FROM workspace_pack
                     WHERE org_id = $1 AND location_id = $2 ORDER BY token, ordinal",
                    at.org.0,
                    at.location.as_str(),
                )
                .fetch_all(&mut *connection)
                .await?;
                rows.into_iter()
                    .map(|row| {
                        Ok(PackRow {
                            token: FencingToken(row.token),
                            ordinal: row.ordinal,
                            tree: tree(&row.tree)?,
                            parent: row.parent.as_deref().map(tree).transpose()?,
                            pack: row.pack,
                            bytes: row.bytes,
                            created_ms: row.created_ms,
                        })
                    })
                    .collect()
            })
        })
        .await
    }

    /// The names of the packs that hold the files of some Locations, oldest Location first: their own packs, and those of the
    /// Locations whose files they began with, however many began with each other's. Each Location's packs are in the order of
    /// their captures.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn pack_names(
        &self,
        org: OrgId,
        locations: Vec<LocationId>,
    ) -> Result<Vec<String>, StoreError> {
        let locations: Vec<String> = locations.iter().map(ToString::to_string).collect();
        self.read(org, move |connection| {
            Box::pin(async move {
                // UNION visits each Location once, so that no circle of seeds is endless.
                Ok(sqlx::query_scalar!(
                    r#"WITH RECURSIVE place (id, created_ms, seed) AS (
                           SELECT l.id, l.created_ms, l.seed_location FROM location l
                           WHERE l.org_id = $1 AND l.id = ANY ($2)
                           UNION
                           SELECT l.id, l.created_ms, l.seed_location
                           FROM place p JOIN location l ON l.org_id = $1 AND l.id = p.seed)
                       SELECT w.pack AS "pack!" FROM place p
                           JOIN workspace_pack w ON w.org_id = $1 AND w.location_id = p.id
                       WHERE w.pack IS NOT NULL ORDER BY p.created_ms, p.id, w.token, w.ordinal"#,
                    org.0,
                    &locations,
                )
                .fetch_all(&mut *connection)
                .await?)
            })
        })
        .await
    }

    /// The changes of a session's files after `after`, oldest first, without those that were reverted for good: all of
    /// them, or those of one message's turns (an answer's own, or those of all answers to a prompt). A page of at most
    /// `limit` changes and about 8 MiB. One round trip.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session.
    pub async fn changes(
        &self,
        org: OrgId,
        session: SessionId,
        message: Option<MessageId>,
        after: Seq,
        limit: i64,
    ) -> Result<Page<ChangeRow>, StoreError> {
        let limit = limit.clamp(1, MAX_ROWS);
        self.lane(org)
            .run(move |connection| {
                Box::pin(async move {
                    let rows = sqlx::query!(
                        r#"SELECT seq AS "seq!", turn_id, base AS "base!", tree AS "tree!", parent,
                               files AS "files!", more AS "more!" FROM read_changes($1, $2, $3, $4, $5)"#,
                        org.0,
                        session.as_str(),
                        message.as_ref().map(MessageId::as_str),
                        after.0,
                        limit,
                    )
                    .fetch_all(&mut *connection)
                    .await
                    .map_err(missing)?;
                    let bytes = rows.iter().map(|row| row.files.len()).sum();
                    let changes = rows.into_iter().map(|row| {
                        Ok(ChangeRow {
                            seq: Seq(row.seq),
                            turn: row.turn_id.map(|id| id.parse()).transpose()?,
                            base: row.base,
                            tree: tree(&row.tree)?,
                            parent: row.parent.as_deref().map(tree).transpose()?,
                            files: serde_json::from_str(&row.files)
                                .map_err(|error| StoreError::Unreadable(error.to_string()))?,
                            more: row.more,
                        })
                    });
                    let changes: Result<Vec<_>, StoreError> = changes.collect();
                    Ok(Page::of(changes?, limit, bytes, PAGE_BYTES))
                })
            })
            .await
    }

    /// Says which files a new Location begins with. Saying so again changes nothing.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without one of the Locations; [`StoreError::Conflict`] when it has files of its own, or
    /// other ones to begin with.
    pub async fn seed_location(&self, at: LocationRef, seed: Seed) -> Result<(), StoreError> {
        self.at_head(at.org, &at.location.to_string(), move |connection| {
            Box::pin(async move {
                let outcome = sqlx::query_scalar!(
                    r#"SELECT seed_location($1, $2, $3, $4) AS "outcome!""#,
                    at.org.0,
                    at.location.as_str(),
                    seed.location.as_str(),
                    seed.tree.as_str(),
                )
                .fetch_one(&mut *connection)
                .await?;
                match outcome.as_str() {
                    "seeded" => Ok(()),
                    "used" => Err(StoreError::Conflict { what: "a Location with files" }),
                    _ => Err(StoreError::NotFound),
                }
            })
        })
        .await
    }
}

/// A tree's id as a row has it.
pub(crate) fn tree(stored: &str) -> Result<SnapshotTree, StoreError> {
    SnapshotTree::try_from(stored.to_owned())
        .map_err(|_| StoreError::Unreadable(format!("tree {stored}")))
}
