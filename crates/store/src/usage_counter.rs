//! Counts usage again and again, and knows which sessions could not be counted.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;

use domain::OrgId;
use sqlx::error::DatabaseError;
use tokio::time::Instant;
use tracing::warn;

use crate::{Store, StoreError};

/// The most sessions of one statement.
const AT_ONCE: usize = 200;

/// How long a session waits that could not be counted: each try may take as long as a statement may.
const AGAIN: Duration = Duration::from_secs(300);

/// Counts what sessions have used. A session that cannot be counted, for whatever reason, holds up no other: it is left out,
/// and tried again after five minutes, after all others. The position of its organisation moves on meanwhile, so a process
/// that knows nothing of it yet compares all sessions with what is counted, once.
#[derive(Debug)]
pub struct UsageCounter {
    store: Store,
    /// The sessions that could not be counted, and when each was tried last.
    failed: HashMap<(OrgId, String), Instant>,
    /// The organisations whose sessions were all compared.
    compared: HashSet<OrgId>,
}

impl UsageCounter {
    /// One that knows of no failures.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store, failed: HashMap::new(), compared: HashSet::new() }
    }

    /// Counts what is new of an organisation's sessions. Returns how many had something new, perhaps.
    ///
    /// # Errors
    /// When the database cannot be reached, or does not say what is new: what is counted stays counted, and the next call
    /// goes on.
    pub async fn count(&mut self, org: OrgId) -> Result<usize, StoreError> {
        let due = self.store.due_usage(org).await?;
        let mut sessions = due.sessions.clone();
        if !self.compared.contains(&org) {
            let all = self.store.uncounted_sessions(org).await?;
            sessions.extend(all);
            sessions.sort_unstable();
            sessions.dedup();
        }
        let found = sessions.len();
        sessions.retain(|session| !self.failed.contains_key(&(org, session.clone())));
        for together in sessions.chunks(AT_ONCE) {
            match self.count_sessions(org, together.to_vec()).await {
                Err(error) if is_away(&error) => return Err(error),
                // Each alone shows which it was.
                Err(_) => self.count_each(org, together.to_vec()).await?,
                Ok(()) => {}
            }
        }
        let waited = |(of, session): &(OrgId, String), tried: &Instant| {
            (*of == org && tried.elapsed() >= AGAIN).then(|| session.clone())
        };
        let again = self.failed.iter().filter_map(|(key, tried)| waited(key, tried)).collect();
        self.count_each(org, again).await?;
        self.store.keep_usage_position(due).await?;
        self.compared.insert(org);
        Ok(found)
    }

    async fn count_each(&mut self, org: OrgId, sessions: Vec<String>) -> Result<(), StoreError> {
        for session in sessions {
            let key = (org, session.clone());
            match self.count_sessions(org, vec![session.clone()]).await {
                Ok(()) => drop(self.failed.remove(&key)),
                Err(error) if is_away(&error) => return Err(error),
                Err(error) => {
                    telemetry::metrics().usage_failed();
                    let cause = error.source().map(ToString::to_string);
                    warn!(
                        %error, cause, session, again_s = AGAIN.as_secs(),
                        "the usage of a session cannot be counted; it is left out, and tried again"
                    );
                    self.failed.insert(key, Instant::now());
                }
            }
        }
        Ok(())
    }

    /// Counts all that is new of these sessions.
    async fn count_sessions(&self, org: OrgId, sessions: Vec<String>) -> Result<(), StoreError> {
        while self.store.roll_up_usage(org, sessions.clone()).await? {}
        Ok(())
    }
}

/// Whether the database was not there at all, or others had the sums: that is no session's fault.
fn is_away(error: &StoreError) -> bool {
    let StoreError::Database(cause) = error else { return true };
    if let sqlx::Error::Io(cause) = cause {
        return cause.kind() != ErrorKind::TimedOut;
    }
    // Postgres starts or stops, or has no connection left.
    let code = cause.as_database_error().and_then(DatabaseError::code);
    error.is_locked() || code.is_none_or(|code| code.starts_with("57P") || code == "53300")
}
