use std::future::Future;
use std::time::Duration;

use openraft::error::{
    Fatal, InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, ReplicationClosed,
    StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, OptionalSend};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::types::{RaftSnapshot, RaftTypes, SnapshotMeta, Vote};

/// A larger answer of a member is refused: answers are a vote and a log id.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// The pause before a member that does not answer is asked again.
const BACKOFF: Duration = Duration::from_millis(200);
/// How long a whole Raft snapshot may take to send and install.
const SNAPSHOT_TIME: Duration = Duration::from_secs(20);

/// A Raft snapshot on the wire. `state` is JSON text as a string.
#[derive(Serialize, Deserialize)]
pub(crate) struct SentSnapshot {
    pub(crate) vote: Vote,
    pub(crate) meta: SnapshotMeta,
    pub(crate) state: String,
}

/// Why a message did not come through.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("{url} does not answer")]
    Away { url: String, source: reqwest::Error },
    #[error("{url} answered {status}; do all members have the same version and cluster secret?")]
    Status { url: String, status: reqwest::StatusCode },
    #[error("{url} gave an answer that cannot be read")]
    Unreadable { url: String, source: serde_json::Error },
    #[error("{url} answered more than {MAX_ANSWER_BYTES} bytes")]
    TooLong { url: String },
    #[error("Raft snapshots are sent whole")]
    Chunked,
    #[error("the Raft snapshot is not text")]
    NotText,
}

impl SendError {
    /// Whether to back off, or to try again at once: a time-out may be one lost packet.
    fn away(&self) -> bool {
        match self {
            Self::Away { source, .. } => !source.is_timeout(),
            Self::Status { .. } | Self::Chunked | Self::NotText => true,
            Self::Unreadable { .. } | Self::TooLong { .. } => false,
        }
    }
}

/// The way to the other members: HTTP to their internal listeners.
#[derive(Clone)]
pub(crate) struct Network {
    client: reqwest::Client,
    secret: Option<String>,
}

impl Network {
    pub(crate) fn new(secret: Option<String>) -> Self {
        let client = reqwest::Client::builder()
            .connect_timeout(Duration::from_millis(500))
            .pool_idle_timeout(Duration::from_secs(30))
            .tcp_nodelay(true)
            .no_proxy()
            .build()
            .expect("no option of this client can fail");
        Self { client, secret }
    }
}

impl RaftNetworkFactory<RaftTypes> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Peer {
        let url = node.addr.trim_end_matches('/').to_owned();
        Peer { target, url, network: self.clone() }
    }
}

/// One other member.
pub(crate) struct Peer {
    target: u64,
    url: String,
    network: Network,
}

impl Peer {
    async fn send<T: DeserializeOwned>(
        &self,
        path: &str,
        message: &(impl Serialize + Sync),
        limit: Duration,
    ) -> Result<T, SendError> {
        let url = format!("{}{path}", self.url);
        let away = |source| SendError::Away { url: url.clone(), source };
        let mut request = self.network.client.post(&url).timeout(limit);
        if let Some(secret) = &self.network.secret {
            request = request.bearer_auth(secret);
        }
        let mut response = request.json(message).send().await.map_err(away)?;
        if !response.status().is_success() {
            return Err(SendError::Status { url, status: response.status() });
        }
        let mut answer = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(away)? {
            if answer.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(SendError::TooLong { url });
            }
            answer.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&answer).map_err(|source| SendError::Unreadable { url, source })
    }

    /// Sends, and takes apart who failed: the way there, or the member itself.
    async fn call<T: DeserializeOwned, E: std::error::Error + DeserializeOwned>(
        &self,
        path: &str,
        message: &(impl Serialize + Sync),
        limit: Duration,
    ) -> Result<T, RPCError<u64, BasicNode, RaftError<u64, E>>> {
        match self.send::<Result<T, RaftError<u64, E>>>(path, message, limit).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(RemoteError::new(self.target, error).into()),
            Err(error) if error.away() => Err(Unreachable::new(&error).into()),
            Err(error) => Err(NetworkError::new(&error).into()),
        }
    }
}

impl RaftNetwork<RaftTypes> for Peer {
    async fn append_entries(
        &mut self,
        message: AppendEntriesRequest<RaftTypes>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        self.call("/placement/raft/append", &message, option.hard_ttl()).await
    }

    async fn install_snapshot(
        &mut self,
        _message: InstallSnapshotRequest<RaftTypes>,
        _option: RPCOption,
    ) -> Result<
        InstallSnapshotResponse<u64>,
        RPCError<u64, BasicNode, RaftError<u64, InstallSnapshotError>>,
    > {
        Err(Unreachable::new(&SendError::Chunked).into())
    }

    async fn vote(
        &mut self,
        message: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        self.call("/placement/raft/vote", &message, option.hard_ttl()).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: RaftSnapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<RaftTypes, Fatal<u64>>> {
        let Ok(state) = String::from_utf8(snapshot.snapshot.into_inner()) else {
            return Err(Unreachable::new(&SendError::NotText).into());
        };
        let sent = SentSnapshot { vote, meta: snapshot.meta, state };
        type Answer = Result<SnapshotResponse<u64>, Fatal<u64>>;
        let answer = tokio::select! {
            closed = cancel => return Err(closed.into()),
            answer = self.send::<Answer>("/placement/raft/snapshot", &sent, SNAPSHOT_TIME) => answer,
        };
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(RemoteError::new(self.target, error).into()),
            Err(error) if error.away() => Err(Unreachable::new(&error).into()),
            Err(error) => Err(NetworkError::new(&error).into()),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(BACKOFF))
    }
}
