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

/// The header that says for which data folder a message is meant.
pub(crate) const FOLDER: &str = "opencode-placement-folder";

/// A larger answer of a member is refused: answers are a vote and a log id.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// A larger status is refused: a worker takes some 300 bytes.
const MAX_STATUS_BYTES: usize = 16 * 1024 * 1024;
/// How long a member may take to say who it is.
const STATUS_TIME: Duration = Duration::from_secs(2);
/// As much as the leader of a heartbeat answers: see the client's own bound.
const MAX_PASSED_BYTES: usize = 64 * 1024 * 1024;
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
    /// Whether to back off, or to try again at once: a time-out may be one lost packet.
    fn away(&self) -> bool {
        match self {
            Self::Away { source, .. } => !source.is_timeout(),
            Self::Status { .. } | Self::OtherFolder { .. } | Self::Chunked | Self::NotText => true,
            Self::Unreadable { .. } | Self::TooLong { .. } => false,
        }
    }
}

/// The way to the other members: HTTP to their internal listeners.
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

    /// Sends a request and reads the answer, at most `bound` bytes of it.
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

    /// Asks the member at `url` who it is.
    pub(crate) async fn status(&self, url: &str) -> Result<Status, SendError> {
        let url = format!("{}/placement/status", url.trim_end_matches('/'));
        let request = self.client.request(Method::GET, &url).timeout(STATUS_TIME);
        let (status, answer) = self.send(request, &url, MAX_STATUS_BYTES).await?;
        if !status.is_success() {
            return Err(SendError::Status { url, status });
        }
        serde_json::from_slice(&answer).map_err(|source| SendError::Unreadable { url, source })
    }

    /// Passes the call of a worker or gateway on to the leader at `url`; gives its answer as it came.
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

/// One other member.
pub(crate) struct Peer {
    target: u64,
    url: String,
    /// The folder that the group knows it by.
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

    /// Sends, and takes apart who failed: the way there, or the member itself.
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
