use std::collections::BTreeMap;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use axum::Router;
use openraft::SnapshotPolicy;
use placement_api::{Member, Status};
use tasks::{CancellationToken, OnCancel, OnError, TaskGroup, TaskKind};
use tokio::sync::watch;

use super::disk::{Disk, DiskError};
use super::leader::lead;
use super::local::LocalPlacement;
use super::log_store::LogStore;
use super::machine::{Machine, SharedState};
use super::network::Network;
use super::types::{MemberNode, Metrics, Raft};
use super::{Host, Options, Timing, router};

const SUPERVISE: TaskKind = TaskKind::new("placement", OnError::StopRole, OnCancel::Wait);
const MAJORITY: TaskKind = TaskKind::new("placement majority", OnError::Log, OnCancel::Wait);
/// How often a member looks whether it is part of a majority.
const LOOK: Duration = Duration::from_millis(200);
/// The longest time for the task to stop.
const STOP_TIME: Duration = Duration::from_secs(2);
/// The pause before a leader whose write failed tries to lead again.
const PAUSE: Duration = Duration::from_millis(100);
/// The most entries in one message to another member.
const MAX_APPEND_ENTRIES: u64 = 64;

/// The reason why a member cannot run. None goes away by itself.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Its data cannot be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The times contradict each other.
    #[error("placement's times do not fit together: heartbeat < election_min < election_max")]
    Timing(#[source] Box<openraft::ConfigError>),
    /// Its log or state cannot be used, or the file failed at run time.
    #[error("placement member {id} stopped: {reason}")]
    Stopped {
        /// The member.
        id: u64,
        /// The cause and the remedy.
        reason: String,
    },
    /// The group knows this member's number with another data folder.
    #[error(
        "the data folder of placement member {id} is new, and the group knows the number {id} by another one: its \
         folder was lost, and with it what the member has voted for; run `placement remove {id}`, then start a member \
         with an empty folder under a number that was never used, and `placement add` it"
    )]
    Displaced {
        /// Its number.
        id: u64,
    },
    /// A folder from a larger group was started as a group of one.
    #[error(
        "this data folder belongs to a group of {members} members; start it with --placement-peers"
    )]
    NotSingle {
        /// The number of members.
        members: usize,
    },
}

/// A member's answer to probes. Cheap to clone.
#[derive(Clone)]
pub struct MemberReadiness(Arc<Host>);

impl MemberReadiness {
    /// Returns what keeps the member from being of use: no group, or no majority for ten seconds. `None` when nothing
    /// does.
    #[must_use]
    pub fn why_unready(&self) -> Option<String> {
        self.0.note_majority();
        self.0.why_unready()
    }
}

/// A running member of placement.
pub struct PlacementNode {
    pub(super) host: Arc<Host>,
    disk: Arc<Disk>,
    tasks: TaskGroup,
    local: LocalPlacement,
}

impl PlacementNode {
    /// Opens the member's data and starts it. It answers once [`PlacementNode::router`] is served. With
    /// `single` it founds its group at the first start and leads within moments.
    ///
    /// # Errors
    /// [`NodeError`]: the data folder cannot be used. It starts even if the other members are absent.
    pub async fn start(options: Options) -> Result<Self, NodeError> {
        let Options { id, timing, secret, .. } = &options;
        let disk = Disk::open(&options.data_dir, *id).await?;
        let network = Network::new(secret.clone());
        let started = Self::run(*id, timing, network.clone(), &disk).await;
        let (raft, state) = match started {
            Ok(started) => started,
            Err(error) => {
                disk.close().await;
                return Err(error);
            }
        };
        let host = Arc::new(Host {
            id: *id,
            folder: disk.folder(),
            displaced: CancellationToken::new(),
            network,
            generation: AtomicU32::new(options.generation.0),
            secret: options.secret,
            timing: options.timing,
            clock: options.clock,
            signals: options.signals,
            ready_work: options.ready_work,
            raft,
            state,
            leading: RwLock::new(None),
            served: RwLock::new(None),
        });
        let advertised = options.advertise_url;
        let tasks = options.tasks.child("placement");
        let local = LocalPlacement::new(host.clone());
        let node = Self { host, disk, tasks, local };
        if options.single
            && let Err(error) = node.found_alone(advertised.clone()).await
        {
            node.shutdown().await;
            return Err(error);
        }
        if let Some(known) = node.known_elsewhere(&advertised).await {
            tracing::warn!(
                id = node.host.id,
                known,
                advertised,
                "the placement group knows this member at another URL; start it with --advertise KNOWN, or remove it \
                 and add it under a new number"
            );
        }
        let (watched, stop) = (node.host.clone(), node.tasks.token());
        node.tasks.spawn(MAJORITY, async move {
            while !stop.is_cancelled() {
                watched.note_majority();
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(LOOK) => {}
                }
            }
            Ok::<(), std::convert::Infallible>(())
        });
        node.tasks.spawn(SUPERVISE, supervise(node.host.clone(), node.tasks.token()));
        Ok(node)
    }

    async fn run(
        id: u64,
        timing: &Timing,
        network: Network,
        disk: &Arc<Disk>,
    ) -> Result<(Raft, SharedState), NodeError> {
        let stopped = |reason: String| NodeError::Stopped { id, reason };
        let config = config(timing)?;
        let state = SharedState::default();
        let machine = Machine::open(disk.clone(), state.clone())
            .await
            .map_err(|error| stopped(error.to_string()))?;
        let log = LogStore::new(disk.clone());
        let raft = Raft::new(id, Arc::new(config), network, log, machine)
            .await
            .map_err(|error| stopped(error.to_string()))?;
        Ok((raft, state))
    }

    /// Returns the members that Raft has on disk. Its metrics do not have them at first.
    async fn members(&self) -> Result<BTreeMap<u64, MemberNode>, NodeError> {
        let members = self.host.raft.with_raft_state(|state| {
            let membership = state.membership_state.effective().membership();
            membership.nodes().map(|(id, node)| (*id, node.clone())).collect()
        });
        let stopped = |reason: String| NodeError::Stopped { id: self.host.id, reason };
        members.await.map_err(|error| stopped(error.to_string()))
    }

    /// Returns the URL that the group has for this member, if that differs from `advertised`: the others use
    /// that one.
    pub(super) async fn known_elsewhere(&self, advertised: &str) -> Option<String> {
        // If Raft has ended, the supervisor reports it.
        let mut members = self.members().await.ok()?;
        let several = members.len() > 1;
        let node = members.remove(&self.host.id).filter(|_| several && !advertised.is_empty())?;
        (node.addr != advertised).then_some(node.addr)
    }

    /// Founds a group of this member alone: the embedded default.
    async fn found_alone(&self, url: String) -> Result<(), NodeError> {
        let stopped = |reason: String| NodeError::Stopped { id: self.host.id, reason };
        let founded = self.host.raft.is_initialized().await;
        if founded.map_err(|error| stopped(error.to_string()))? {
            let members = self.members().await?.len();
            return if members > 1 { Err(NodeError::NotSingle { members }) } else { Ok(()) };
        }
        let alone =
            BTreeMap::from([(self.host.id, MemberNode { addr: url, folder: self.host.folder })]);
        let founded = self.host.raft.initialize(alone).await;
        founded.map_err(|error| stopped(error.to_string()))
    }

    /// Returns placement for this process: direct while this member leads, over HTTP otherwise.
    #[must_use]
    pub fn local(&self) -> LocalPlacement {
        self.local.clone()
    }

    /// Returns the router for the internal listener, to serve at the URL that the group knows.
    pub fn router(&self) -> Router {
        router::router(self.host.clone())
    }

    /// Returns this member's view of the group.
    #[must_use]
    pub fn status(&self) -> Status {
        self.host.status()
    }

    /// Returns this member's answer to probes.
    #[must_use]
    pub fn readiness(&self) -> MemberReadiness {
        MemberReadiness(self.host.clone())
    }

    /// Founds a group that includes this member, like `POST /placement/init`.
    ///
    /// # Errors
    /// Those of [`placement_api::PlacementAdmin::init`].
    pub async fn init(&self, members: &[Member]) -> Result<(), placement_api::PlacementError> {
        match self.host.found(members).await {
            Ok(()) => Ok(()),
            Err(super::leader::Refused::Answer(error)) => Err(error),
            Err(super::leader::Refused::NotLeader) => {
                let reason = "only a member without a group founds one".to_owned();
                Err(placement_api::PlacementError::Invalid { reason })
            }
        }
    }

    /// Waits until this member leads and answers, or knows the leader.
    pub async fn ready(&self) {
        let mut metrics = self.host.raft.metrics();
        loop {
            if self.host.leading().is_some() || self.host.leader_url().is_some() {
                return;
            }
            // A leader answers a moment after its election, which the metrics do not show.
            let _ = tokio::time::timeout(PAUSE / 10, metrics.changed()).await;
            tokio::time::sleep(PAUSE / 50).await;
        }
    }

    /// Stops the member and frees its data folder. Leases stay; the other members or the next start take
    /// over.
    pub async fn shutdown(&self) {
        self.tasks.shutdown(STOP_TIME).await;
        self.host.set_leading(None);
        if let Err(error) = self.host.raft.shutdown().await {
            tracing::warn!(%error, "placement's Raft did not end in order");
        }
        self.disk.close().await;
    }
}

fn config(timing: &Timing) -> Result<openraft::Config, NodeError> {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let config = openraft::Config {
        cluster_name: "placement".to_owned(),
        heartbeat_interval: millis(timing.heartbeat),
        election_timeout_min: millis(timing.election_min),
        election_timeout_max: millis(timing.election_max),
        install_snapshot_timeout: 20_000,
        max_payload_entries: MAX_APPEND_ENTRIES,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(timing.snapshot_every),
        max_in_snapshot_log_to_keep: timing.keep_entries,
        replication_lag_threshold: timing.snapshot_every.max(timing.keep_entries) * 2,
        ..openraft::Config::default()
    };
    config.validate().map_err(|error| NodeError::Timing(Box::new(error)))
}

/// Leads whenever Raft elects this member. Ends with the role, or with the error that ended Raft.
async fn supervise(host: Arc<Host>, cancel: CancellationToken) -> Result<(), NodeError> {
    let mut metrics = host.raft.metrics();
    loop {
        let leads = {
            let now = metrics.borrow_and_update();
            if let Err(error) = &now.running_state {
                return Err(NodeError::Stopped { id: host.id, reason: error.to_string() });
            }
            leads(&now)
        };
        let Some(term) = leads else {
            tokio::select! {
                () = cancel.cancelled() => return Ok(()),
                () = host.displaced.cancelled() => return Err(NodeError::Displaced { id: host.id }),
                changed = metrics.changed() => if changed.is_err() { return ended(&host).await },
            }
            continue;
        };
        let deposed = tokio::select! {
            () = cancel.cancelled() => Ok(()),
            deposed = deposed(&mut metrics, term) => deposed,
            () = Box::pin(lead(&host)) => Ok(()),
        };
        host.set_leading(None);
        if cancel.is_cancelled() {
            return Ok(());
        }
        if deposed.is_err() {
            return ended(&host).await;
        }
        tracing::info!(id = host.id, "placement no longer leads");
        // Whatever happens next must not repeat a hundred thousand times a second.
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns the reason why Raft ended. Its last metrics do not show a panic.
async fn ended(host: &Host) -> Result<(), NodeError> {
    let reason = match host.raft.with_raft_state(|_| ()).await {
        Ok(()) => "Raft ended without an error".to_owned(),
        Err(error) => format!("Raft ended: {error}; start the member again"),
    };
    Err(NodeError::Stopped { id: host.id, reason })
}

/// Returns the term in which this member leads.
fn leads(metrics: &Metrics) -> Option<u64> {
    (metrics.state.is_leader() && metrics.running_state.is_ok()).then_some(metrics.current_term)
}

/// Waits until this member no longer leads in `term`. An error means that Raft has ended.
async fn deposed(
    metrics: &mut watch::Receiver<Metrics>,
    term: u64,
) -> Result<(), watch::error::RecvError> {
    metrics.wait_for(|now| leads(now) != Some(term)).await.map(drop)
}
