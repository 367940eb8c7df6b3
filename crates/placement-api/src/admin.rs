use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::caller::{Caller, Patience};
use crate::{Member, PlacementError, Status};

/// The patience for changes: adding a member waits until it has caught up.
const CHANGE: Patience = Patience { each: Duration::from_secs(30), whole: Duration::from_secs(35) };
const ASK: Patience = Patience { each: Duration::from_secs(2), whole: Duration::from_secs(5) };

/// The operator's client of placement: `opencode-cloud placement …` and `nodes …`.
pub struct PlacementAdmin {
    caller: Caller,
}

impl PlacementAdmin {
    /// Makes a client of the members whose internal listeners are at `peers`.
    #[must_use]
    pub fn new(peers: Vec<String>, secret: Option<String>) -> Self {
        Self { caller: Caller::new(peers, secret) }
    }

    /// Returns the leader's view of the group, or a member's own view if there is no leader.
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

    /// Founds a group of these members, through the first configured peer. Only once per group. Raise the
    /// generation first, so that its tokens outrank those of an earlier group.
    ///
    /// # Errors
    /// `Invalid` if the member already belongs to a group or is not among `members`.
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
    /// `Invalid` if it does not catch up, another change is under way, or the id belongs to another URL.
    pub async fn add_member(&self, id: u64, url: &str) -> Result<(), PlacementError> {
        let body = json!({ "id": id, "url": url });
        self.caller.lead::<Value>("/placement/members", &body, CHANGE).await.map(drop)
    }

    /// Removes a member for good: neither its id nor its data folder may be used again.
    ///
    /// # Errors
    /// `Invalid` if it is not a member or is the last one, or if another change is under way.
    pub async fn remove_member(&self, id: u64) -> Result<(), PlacementError> {
        let path = format!("/placement/members/{id}/remove");
        self.caller.lead::<Value>(&path, &json!({}), CHANGE).await.map(drop)
    }

    /// Makes all workers of a node finish at their next boundary and return their Locations. The node gets no
    /// new ones until [`Self::undrain_node`].
    ///
    /// # Errors
    /// `Invalid` if the name is not valid.
    pub async fn drain_node(&self, node: &str) -> Result<(), PlacementError> {
        self.node(node, "drain").await
    }

    /// Lets a drained node take Locations again.
    ///
    /// # Errors
    /// Those of [`Self::drain_node`].
    pub async fn undrain_node(&self, node: &str) -> Result<(), PlacementError> {
        self.node(node, "undrain").await
    }

    async fn node(&self, node: &str, verb: &str) -> Result<(), PlacementError> {
        valid_node(node)?;
        let path = format!("/placement/nodes/{node}/{verb}");
        self.caller.lead::<Value>(&path, &json!({}), ASK).await.map(drop)
    }
}

/// Checks that a node's name is safe in a path and readable.
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
