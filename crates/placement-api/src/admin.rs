use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::caller::{Caller, Patience};
use crate::{Member, PlacementError, Status};

/// Adding a member waits until it has caught up.
const CHANGE: Patience = Patience { each: Duration::from_secs(30), whole: Duration::from_secs(35) };
const ASK: Patience = Patience { each: Duration::from_secs(2), whole: Duration::from_secs(5) };

/// What an operator asks of placement: `opencode-cloud placement …` and `nodes …`.
pub struct PlacementAdmin {
    caller: Caller,
}

impl PlacementAdmin {
    /// A client of the members whose internal listeners answer at `peers`.
    #[must_use]
    pub fn new(peers: Vec<String>, secret: Option<String>) -> Self {
        Self { caller: Caller::new(peers, secret) }
    }

    /// The leader's view of the group; a member's own when nobody leads.
    ///
    /// # Errors
    /// `Unreachable` when no member answers.
    pub async fn status(&self) -> Result<Status, PlacementError> {
        let mut best: Option<Status> = None;
        let mut last = PlacementError::Unreachable {
            reason: "no placement member is configured; set --placement-peers".to_owned(),
        };
        for peer in self.caller.peers() {
            let asked =
                self.caller.one(Method::GET, peer, "/placement/status", None::<&Value>, ASK.each);
            match asked.await {
                Ok::<Status, _>(status) if status.leader == Some(status.id) => return Ok(status),
                Ok(status) => best = best.or(Some(status)),
                Err(error) => last = error,
            }
        }
        best.ok_or(last)
    }

    /// Founds a group of these members, at the first of the configured peers. Only once per group: raise
    /// the generation first, so that tokens of an earlier group are outranked.
    ///
    /// # Errors
    /// `Invalid` when the member already belongs to a group or is not among `members`.
    pub async fn init(&self, members: &[Member]) -> Result<(), PlacementError> {
        let Some(peer) = self.caller.peers().first() else {
            return Err(PlacementError::Invalid {
                reason: "no placement member is configured; set --placement-peers".to_owned(),
            });
        };
        let body = json!({ "members": members });
        let asked = self.caller.one::<Value>(
            Method::POST,
            peer,
            "/placement/init",
            Some(&body),
            CHANGE.each,
        );
        asked.await.map(drop)
    }

    /// Adds a member, waits until it has the state, and gives it a vote.
    ///
    /// # Errors
    /// `Invalid` when it does not catch up, another change is under way, or the id is taken by another URL.
    pub async fn add_member(&self, id: u64, url: &str) -> Result<(), PlacementError> {
        let body = json!({ "id": id, "url": url });
        self.caller.lead::<Value>("/placement/members", &body, CHANGE).await.map(drop)
    }

    /// Removes a member for good: its id may not be used again with its data folder.
    ///
    /// # Errors
    /// `Invalid` when it is not a member, is the last one, or another change is under way.
    pub async fn remove_member(&self, id: u64) -> Result<(), PlacementError> {
        let path = format!("/placement/members/{id}/remove");
        self.caller.lead::<Value>(&path, &json!({}), CHANGE).await.map(drop)
    }

    /// Asks all workers of a node to finish at their next boundary and to give their Locations back;
    /// it gets no new ones until [`Self::undrain_node`].
    ///
    /// # Errors
    /// `Invalid` when the name is not one.
    pub async fn drain_node(&self, node: &str) -> Result<(), PlacementError> {
        self.node(node, "drain").await
    }

    /// Lets a drained node take Locations again.
    ///
    /// # Errors
    /// As [`Self::drain_node`].
    pub async fn undrain_node(&self, node: &str) -> Result<(), PlacementError> {
        self.node(node, "undrain").await
    }

    async fn node(&self, node: &str, verb: &str) -> Result<(), PlacementError> {
        valid_node(node)?;
        let path = format!("/placement/nodes/{node}/{verb}");
        self.caller.lead::<Value>(&path, &json!({}), ASK).await.map(drop)
    }
}

/// Whether a node's name can be used in a path and read by people.
///
/// # Errors
/// `Invalid` with the rule.
pub fn valid_node(node: &str) -> Result<(), PlacementError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if node.is_empty() || node.len() > 253 || node.starts_with('.') || !node.bytes().all(plain) {
        return Err(PlacementError::Invalid {
            reason: format!(
                "node name `{node}` is not valid: use 1 to 253 letters, digits, `-`, `_` and `.`"
            ),
        });
    }
    Ok(())
}
