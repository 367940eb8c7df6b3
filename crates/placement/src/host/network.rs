use std::future::Future;
use std::time::Duration;

use axum::body::Bytes;
use openraft::OptionalSend;
use openraft::error::{
    Fatal, InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, ReplicationClosed,
    StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    SnapshotResponse, VoteRequest, VoteResponse,
};
use placement_api::{FolderId, Status};
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::reach::Reach;
use super::types::{MemberNode, RaftSnapshot, RaftTypes, SnapshotMeta, Vote};

/// The header with the data folder that a message is meant for.
pub(crate) const FOLDER: &str = "opencode-placement-folder";

/// The largest answer of a member, in bytes. Answers are a vote and a log id.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// The largest status, in bytes. A worker takes about 300.
const MAX_STATUS_BYTES: usize = 16 * 1024 * 1024;
/// The timeout for a member's status.
const STATUS_TIME: Duration = Duration::from_secs(2);
/// The largest answer to a call that is passed on, in bytes; the client has the same bound.
const MAX_PASSED_BYTES: usize = 64 * 1024 * 1024;
/// The pause before a member that does not answer is tried again.
const BACKOFF: Duration = Duration::from_millis(200);
/// The timeout to send and install a whole Raft snapshot.
const SNAPSHOT_TIME: Duration = Duration::from_secs(20);

/// A Raft snapshot on the wire. `state` is JSON text as a string.
#[derive(Serialize, Deserialize)]
pub(crate) struct SentSnapshot {
    pub(crate) vote: Vote,
    pub(crate) meta: SnapshotMeta,
    pub(crate) state: String,
}

/// The reason why a message failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error("{url} does not answer")]
    Away { url: String, source: reqwest::Error },
    #[error("{url} answered {status}; do all members have the same version and cluster secret?")]
    Status { url: String, status: StatusCode },
    #[error(
        "{url} has another data folder than the one that joined the group: its own was lost; remove the member, and \
         add it under a new number"
    )]
    OtherFolder { url: String },
    #[error("{url} gave an answer that cannot be read")]
    Unreadable { url: String, source: serde_json::Error },
    #[error("{url} answered more than {bound} bytes")]
    TooLong { url: String, bound: usize },
    #[error("Raft snapshots are sent whole")]
    Chunked,
    #[error("the Raft snapshot is not text")]
    NotText,
}

impl SendError {
    /// Returns whether to back off. A timeout may be one lost packet, so it is retried at once.
    fn away(&self) -> bool {
        match self {
            Self::Away { source, .. } => !source.is_timeout(),
            Self::Status { .. } | Self::OtherFolder { .. } | Self::Chunked | Self::NotText => true,
            Self::Unreadable { .. } | Self::TooLong { .. } => false,
        }
    }
}

/// The HTTP client to the other members' internal listeners.
#[derive(Clone)]
pub(crate) struct Network {
    client: reqwest::Client,
    secret: Option<String>,
    reach: Reach,
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
        Self { client, secret, reach: Reach::default() }
    }

    /// Sends a request and reads at most `bound` bytes of the answer.
    async fn send(
        &self,
        request: reqwest::RequestBuilder,
        url: &str,
        bound: usize,
    ) -> Result<(StatusCode, Vec<u8>), SendError> {
        let away = |source| SendError::Away { url: url.to_owned(), source };
        let request = match &self.secret {
            Some(secret) => request.bearer_auth(secret),
            None => request,
        };
        let mut response = request.send().await.map_err(away)?;
        let status = response.status();
        let mut answer = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(away)? {
            if answer.len() + chunk.len() > bound {
                return Err(SendError::TooLong { url: url.to_owned(), bound });
            }
            answer.extend_from_slice(&chunk);
        }
        Ok((status, answer))
    }

    /// Gets the status of the member at `url`.
    pub(crate) async fn status(&self, url: &str) -> Result<Status, SendError> {
        let url = format!("{}/placement/status", url.trim_end_matches('/'));
        let request = self.client.request(Method::GET, &url).timeout(STATUS_TIME);
        let (status, answer) = self.send(request, &url, MAX_STATUS_BYTES).await?;
        if !status.is_success() {
            return Err(SendError::Status { url, status });
        }
        serde_json::from_slice(&answer).map_err(|source| SendError::Unreadable { url, source })
    }

    /// Passes a worker's or gateway's call on to the leader at `url`, and returns the answer unchanged.
    pub(crate) async fn pass_on(
        &self,
        url: &str,
        path: &str,
        call: &(impl Serialize + Sync),
        limit: Duration,
    ) -> Result<(StatusCode, Bytes), SendError> {
        let url = format!("{}{path}", url.trim_end_matches('/'));
        let request = self.client.post(&url).timeout(limit).json(call);
        let (status, answer) = self.send(request, &url, MAX_PASSED_BYTES).await?;
        Ok((status, answer.into()))
    }
}

impl RaftNetworkFactory<RaftTypes> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &MemberNode) -> Peer {
        let url = node.addr.trim_end_matches('/').to_owned();
        Peer { target, url, folder: node.folder, network: self.clone() }
    }
}

/// The connection to one other member.
pub(crate) struct Peer {
    target: u64,
    url: String,
    /// The folder that the group has for it.
    folder: FolderId,
    network: Network,
}

impl Peer {
    async fn send<T: DeserializeOwned>(
        &self,
        path: &str,
        message: &(impl Serialize + Sync),
        limit: Duration,
    ) -> Result<T, SendError> {
        let sent = self.exchange(path, message, limit).await;
        self.network.reach.note(self.target, &self.url, sent.as_ref().err());
        sent
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        path: &str,
        message: &(impl Serialize + Sync),
        limit: Duration,
    ) -> Result<T, SendError> {
        let url = format!("{}{path}", self.url);
        let mut request = self.network.client.post(&url).timeout(limit).json(message);
        if self.folder.is_known() {
            request = request.header(FOLDER, self.folder.to_string());
        }
        let (status, answer) = self.network.send(request, &url, MAX_ANSWER_BYTES).await?;
        if status == StatusCode::CONFLICT {
            return Err(SendError::OtherFolder { url });
        }
        if !status.is_success() {
            return Err(SendError::Status { url, status });
        }
        serde_json::from_slice(&answer).map_err(|source| SendError::Unreadable { url, source })
    }

    /// Sends a message, and tells a failed connection from a failed member.
    async fn call<T: DeserializeOwned, E: std::error::Error + DeserializeOwned>(
        &self,
        path: &str,
        message: &(impl Serialize + Sync),
        limit: Duration,
    ) -> Result<T, RPCError<u64, MemberNode, RaftError<u64, E>>> {
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
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, MemberNode, RaftError<u64>>> {
        self.call("/placement/raft/append", &message, option.hard_ttl()).await
    }

    async fn install_snapshot(
        &mut self,
        _message: InstallSnapshotRequest<RaftTypes>,
        _option: RPCOption,
    ) -> Result<
        InstallSnapshotResponse<u64>,
        RPCError<u64, MemberNode, RaftError<u64, InstallSnapshotError>>,
    > {
        Err(Unreachable::new(&SendError::Chunked).into())
    }

    async fn vote(
        &mut self,
        message: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, MemberNode, RaftError<u64>>> {
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
