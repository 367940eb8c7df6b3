//! A request to a model, rebuilt from rows alone and proved by its hash.

use std::collections::BTreeMap;

use domain::{OrgId, RecordedEvent, Seq};
use history::{RebuildError, rebuild_body};
use sha2::{Digest, Sha256};
use store::{AttemptRow, Store, StoreError, Violation};

use crate::error::ApiError;

/// The most events in one read.
const PAGE: i64 = 1_000;
/// The most sessions in one look.
const SESSIONS: i64 = 500;

/// A request that was rebuilt.
pub(crate) struct Explained {
    /// The hashes of its components, by name.
    pub(crate) names: BTreeMap<String, String>,
    /// Its components.
    pub(crate) components: BTreeMap<String, Vec<u8>>,
    /// The log that it was made of.
    pub(crate) events: Vec<RecordedEvent>,
    /// Its body, or the reason why there is none.
    pub(crate) rebuilt: Result<Vec<u8>, RebuildError>,
    /// The hash of that body.
    pub(crate) hash: Option<String>,
    /// Whether it is the hash of what was sent.
    pub(crate) matches: bool,
}

/// Rebuilds the request of an attempt.
///
/// # Errors
/// 404 when its session or one of its components is gone.
pub(crate) async fn explain(
    store: &Store,
    org: OrgId,
    attempt: &AttemptRow,
) -> Result<Explained, ApiError> {
    let names: BTreeMap<String, String> =
        serde_json::from_str(&attempt.components).map_err(ApiError::internal)?;
    let mut components = BTreeMap::new();
    for (name, hash) in &names {
        components.insert(name.clone(), store.component(org, hash).await?);
    }
    let events = log(store, org, attempt).await?;
    let rebuilt = rebuild_body(&events, &components, attempt.wire_version, &attempt.turn);
    let hash = rebuilt.as_ref().ok().map(|body| hex::encode(Sha256::digest(body)));
    let matches = hash.as_deref() == Some(attempt.body_hash.as_str());
    Ok(Explained { names, components, events, rebuilt, hash, matches })
}

/// Lists up to `most` sessions whose newest turn was not asked with their log: its request can be rebuilt, and has
/// another hash than what was sent. So it is after work that went on from what the database had lost.
///
/// # Errors
/// When the database fails.
pub(crate) async fn unproven(
    store: &Store,
    org: OrgId,
    most: usize,
) -> Result<Vec<Violation>, ApiError> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let (newest, last) = store.newest_attempts(org, after, SESSIONS).await?;
        for (session, attempt) in newest {
            if found.len() >= most {
                return Ok(found);
            }
            let attempt = match store.attempt(org, attempt.into()).await {
                Ok(attempt) => attempt,
                Err(StoreError::NotFound) => continue, // deleted meanwhile
                Err(error) => return Err(error.into()),
            };
            let explained = match explain(store, org, &attempt).await {
                Ok(explained) => explained,
                // Deleted meanwhile, or imported without all components.
                Err(ApiError::NotFound(_)) => continue,
                Err(error) => return Err(error),
            };
            if explained.hash.is_some() && !explained.matches {
                found.push(Violation {
                    invariant: "I7".to_owned(),
                    session: session.into(),
                    found: format!(
                        "turn {} was not asked with this log (see explain)",
                        attempt.turn
                    ),
                });
            }
        }
        match last {
            Some(_) => after = last,
            None => return Ok(found),
        }
    }
}

/// Reads the events that the attempt was made of.
async fn log(
    store: &Store,
    org: OrgId,
    attempt: &AttemptRow,
) -> Result<Vec<RecordedEvent>, ApiError> {
    let mut events: Vec<RecordedEvent> = Vec::new();
    loop {
        let known = events.last().map_or(Seq(0), |event| event.seq);
        let left = attempt.through.0 - known.0;
        if left <= 0 {
            break;
        }
        let page = store.events(org, attempt.session.clone(), known, left.min(PAGE)).await?;
        if page.items.is_empty() {
            break;
        }
        events.extend(page.items);
    }
    Ok(events)
}
