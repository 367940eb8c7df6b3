use schemars::JsonSchema;
use serde::Serialize;
use store::{OriginRow, RepositoryRow};

/// A session's repository, and how far its workspace is.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RepositoryView {
    /// Its address; that of the project if somebody has sent it.
    url: String,
    /// The branch, tag or commit that was asked for.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    wanted: Option<String>,
    /// The commit with which the session begins, once it is known. It never changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<String>,
    state: FillState,
    /// How far it is: `resolving`, `fetching`, `checking` or `checking out`.
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<String>,
    /// The bytes that were fetched.
    bytes: i64,
    /// Whether somebody has sent it from a machine of their own.
    sent: bool,
    /// Why the last try came to nothing: a word and a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<FaultView>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum FillState {
    /// Nobody has begun. The first prompt begins it.
    Waiting,
    Filling,
    Filled,
    Failed,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FaultView {
    code: String,
    message: String,
}

impl From<OriginRow> for RepositoryView {
    fn from(row: OriginRow) -> Self {
        let state = match (&row.fault, &row.stage) {
            _ if row.is_filled => FillState::Filled,
            (Some(_), _) => FillState::Failed,
            (None, Some(_)) => FillState::Filling,
            (None, None) => FillState::Waiting,
        };
        let RepositoryRow { host, path, .. } = row.repository;
        let url = match &row.sent {
            Some(_) => format!("/{host}/{path}"),
            None => format!("https://{host}/{path}"),
        };
        let (stage, bytes) = row.stage.map_or((None, 0), |(stage, bytes)| (Some(stage), bytes));
        Self {
            url,
            wanted: row.wanted,
            commit: row.commit,
            branch: row.branch,
            state,
            stage,
            bytes,
            sent: row.sent.is_some(),
            fault: row.fault.map(|fault| FaultView { code: fault.code, message: fault.text }),
        }
    }
}
