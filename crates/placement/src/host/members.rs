use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::try_join_all;
use openraft::ChangeMembers;
use openraft::error::{ClientWriteError, InitializeError, RaftError};
use placement_api::{FolderId, Member, PlacementError, Status, WorkerStatus};

use super::Host;
use super::leader::Refused;
use super::types::{MemberNode, Metrics};

/// The longest time for a membership change to commit.
const CHANGE: Duration = Duration::from_secs(5);
const MAX_MEMBERS: usize = 9;

type Changed = Result<openraft::raft::ClientWriteResponse<super::types::RaftTypes>, ChangeError>;
type ChangeError = RaftError<u64, ClientWriteError<u64, MemberNode>>;

fn invalid(reason: impl Into<String>) -> Refused {
    Refused::Answer(PlacementError::Invalid { reason: reason.into() })
}

fn unreachable(reason: impl Into<String>) -> Refused {
    Refused::Answer(PlacementError::Unreachable { reason: reason.into() })
}

/// Checks for a scheme and an authority, so that a typing error is found before it is in the membership.
fn valid_url(url: &str) -> Result<(), Refused> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    match rest {
        Some(rest) if !rest.is_empty() && url.len() <= 512 => Ok(()),
        Some(_) | None => Err(invalid(format!(
            "`{url}` is not a member's URL; give one such as http://10.0.0.1:4301"
        ))),
    }
}

impl Host {
    /// Founds a group. This member must be one of `members` and belong to no group.
    pub(crate) async fn found(&self, members: &[Member]) -> Result<(), Refused> {
        if members.len() > MAX_MEMBERS {
            return Err(invalid(format!("a group has at most {MAX_MEMBERS} members")));
        }
        let mut ids = BTreeSet::new();
        for member in members {
            valid_url(&member.url)?;
            if !ids.insert(member.id) {
                return Err(invalid(format!("member {} is named twice", member.id)));
            }
        }
        let folders = members.iter().map(|member| async move {
            let folder = if member.id == self.id {
                self.folder
            } else {
                self.folder_of_new(member.id, &member.url).await?
            };
            Ok::<_, Refused>((member.id, MemberNode { addr: member.url.clone(), folder }))
        });
        let nodes: BTreeMap<u64, MemberNode> = try_join_all(folders).await?.into_iter().collect();
        self.raft.initialize(nodes).await.map_err(|error| match error {
            RaftError::APIError(InitializeError::NotAllowed(_)) => {
                invalid("this member belongs to a group already; add members to that one")
            }
            RaftError::APIError(InitializeError::NotInMembers(_)) => {
                invalid(format!("member {} is not among the members; ask one that is", self.id))
            }
            RaftError::Fatal(error) => unreachable(error.to_string()),
        })
    }

    /// Returns the data folder of the new member at `url`, which must not belong to a group.
    async fn folder_of_new(&self, id: u64, url: &str) -> Result<FolderId, Refused> {
        let status = self.network.status(url).await.map_err(|error| {
            invalid(format!(
                "member {id} does not answer ({error}); is it started at {url}, with the same cluster secret?"
            ))
        })?;
        if status.id != id {
            return Err(invalid(format!("{url} is member {}, not {id}", status.id)));
        }
        if !status.members.is_empty() {
            return Err(invalid(format!(
                "member {id} at {url} belongs to a group already; start it with an empty data folder, under a number \
                 that the group never had"
            )));
        }
        Ok(status.folder)
    }

    /// Adds a member as a learner, waits until it has all committed entries, and gives it a vote. A learner
    /// that does not catch up is removed again: an absent voter costs the group its majority.
    pub(crate) async fn add_member(&self, id: u64, url: &str) -> Result<(), Refused> {
        valid_url(url)?;
        let metrics = self.metrics();
        let membership = metrics.membership_config.membership();
        if let Some(node) = membership.get_node(&id)
            && node.addr != url
        {
            let known = &node.addr;
            return Err(invalid(format!(
                "member {id} is at {known}; remove it first, or take another id"
            )));
        }
        if membership.nodes().count() >= MAX_MEMBERS {
            return Err(invalid(format!("a group has at most {MAX_MEMBERS} members")));
        }
        if membership.voter_ids().any(|voter| voter == id) {
            return Ok(());
        }
        let node = match membership.get_node(&id) {
            // An earlier attempt was interrupted.
            Some(learner) => learner.clone(),
            None => MemberNode { addr: url.to_owned(), folder: self.folder_of_new(id, url).await? },
        };
        let learner = self.raft.add_learner(id, node, false);
        let joined = self.changed(learner.await)?;
        let caught_up = |metrics: &Metrics| {
            let matched =
                metrics.replication.as_ref().and_then(|all| all.get(&id).copied().flatten());
            matched.is_some_and(|last| last.index >= joined)
        };
        let patience = self.timing.catch_up;
        if self.raft.wait(Some(patience)).metrics(caught_up, "a member to catch up").await.is_err()
        {
            let gone = ChangeMembers::RemoveNodes(BTreeSet::from([id]));
            self.changed(self.raft.change_membership(gone, false).await)?;
            return Err(invalid(format!(
                "member {id} did not catch up in {patience:?}; is it started at {url}, with the same cluster secret?"
            )));
        }
        self.change(ChangeMembers::AddVoterIds(BTreeSet::from([id])), true).await
    }

    /// Removes a member. It keeps its data folder and must not return under its id.
    pub(crate) async fn remove_member(&self, id: u64) -> Result<(), Refused> {
        let metrics = self.metrics();
        let membership = metrics.membership_config.membership();
        if membership.get_node(&id).is_none() {
            return Err(invalid(format!("there is no member {id}")));
        }
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        if voters == BTreeSet::from([id]) {
            return Err(invalid(format!("member {id} is the last one")));
        }
        if voters.contains(&id) {
            self.change(ChangeMembers::RemoveVoters(BTreeSet::from([id])), false).await
        } else {
            self.change(ChangeMembers::RemoveNodes(BTreeSet::from([id])), false).await
        }
    }

    async fn change(
        &self,
        change: ChangeMembers<u64, MemberNode>,
        retain: bool,
    ) -> Result<(), Refused> {
        let changing = self.raft.change_membership(change, retain);
        match tokio::time::timeout(CHANGE, changing).await {
            Ok(changed) => self.changed(changed).map(drop),
            Err(_) => Err(unreachable("no majority of the members agreed in time; see the status")),
        }
    }

    /// Returns the index of the change, or the reason why it failed.
    fn changed(&self, changed: Changed) -> Result<u64, Refused> {
        match changed {
            Ok(response) => Ok(response.log_id.index),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => {
                Err(Refused::NotLeader)
            }
            Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(error))) => {
                Err(invalid(format!("the membership cannot change now: {error}")))
            }
            Err(RaftError::Fatal(error)) => {
                Err(unreachable(format!("member {} stopped: {error}", self.id)))
            }
        }
    }

    /// Returns this member's view of the group.
    pub(crate) fn status(&self) -> Status {
        let metrics = self.metrics();
        let leading = self.leading();
        let membership = metrics.membership_config.membership();
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let member = |(id, node): (&u64, &MemberNode)| Member {
            id: *id,
            url: node.addr.clone(),
            voter: voters.contains(id),
        };
        let leader_url = metrics.current_leader.and_then(|leader| membership.get_node(&leader));
        self.state.read(|state| Status {
            id: self.id,
            folder: self.folder,
            leader: metrics.current_leader,
            leader_url: leader_url.map(|node| node.addr.clone()),
            term: metrics.current_term,
            generation: state.generation().0,
            applied: metrics.last_applied.map_or(0, |last| last.index),
            purged: metrics.purged.map_or(0, |last| last.index),
            members: membership.nodes().map(member).collect(),
            workers: state
                .workers()
                .map(|standing| {
                    let incarnation = standing.worker.incarnation;
                    let (last_heard_ms, said) = leading
                        .as_ref()
                        .map(|leading| leading.seen(incarnation))
                        .unwrap_or_default();
                    WorkerStatus {
                        worker: standing.worker.clone(),
                        leases: standing.count(),
                        last_heard_ms,
                        busy: said.busy,
                        stranded: said.stranded,
                        draining: said.draining || state.is_drained(&standing.worker.node),
                    }
                })
                .collect(),
            leases: state.leases(),
            draining_nodes: state.drained().map(str::to_owned).collect(),
        })
    }
}
