//! Version control of a directory for stock clients.
//!
//! A checkout on this machine is asked itself: for its branch, and through git for the changes of its working tree. Elsewhere the
//! changes are those of the directory's newest session, as its snapshots have them, and the branch is what the newest snapshot of a
//! repository's workspace has in its `.git/HEAD`.

use std::path::Path;

use axum::Json;
use axum::extract::State;
use checkouts::CheckoutBranch;
use domain::OrgId;
use serde::{Deserialize, Serialize};
use snapshots::TreeId;
use store::{OriginRow, SessionFilter, SessionRow, SessionsOf};

use super::local::{Looker, local_directory};
use super::place::Named;
use super::settings::settings_at;
use crate::ApiState;
use crate::act::{DiffQuery, diff};
use crate::error::ApiError;
use crate::surface::extract::{CanRead, Params};
use crate::view::FileView;

#[derive(Debug, Deserialize)]
pub(crate) struct Query {
    mode: Option<Mode>,
    /// The lines around a change. A patch of a session has as many as its snapshots were compared with.
    context: Option<u32>,
}

/// The lines around a change, unless a client says how many.
const CONTEXT: u32 = 3;
/// The most of them.
const MAX_CONTEXT: u32 = 100_000;

#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Git,
    Branch,
}

/// Lists the changes with their patches.
pub(crate) async fn diff_route(
    access: CanRead,
    looker: Looker,
    State(state): State<ApiState>,
    named: Named,
    Params(query): Params<Query>,
) -> Result<Json<Vec<FileView>>, ApiError> {
    if query.mode == Some(Mode::Branch) && origin(&state, access.org, &named).await?.is_none() {
        return Err(ApiError::NotOffered(
            "the directory's branch cannot be compared with another one here: leave `mode` out for what is not committed",
        ));
    }
    let context = query.context.unwrap_or(CONTEXT).min(MAX_CONTEXT);
    changes(&state, &looker, &named, Some(context)).await.map(Json)
}

/// The branch of a directory.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Info {
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_branch: Option<String>,
}

/// Shows the branch of a checkout on this machine, otherwise of the directory's newest session; nothing without a repository.
pub(crate) async fn info(
    access: CanRead,
    looker: Looker,
    State(state): State<ApiState>,
    named: Named,
) -> Result<Json<Info>, ApiError> {
    if let Some(local) = local_directory(&state, &looker, &named).await?
        && let Some(CheckoutBranch { branch }) = local.read_branch().await
    {
        return Ok(Json(Info { branch, default_branch: None }));
    }
    let Some((row, origin)) = origin(&state, access.org, &named).await? else {
        return Ok(Json(Info::default()));
    };
    let short = |name: &String| name.strip_prefix("refs/heads/").unwrap_or(name).to_owned();
    let default_branch = origin.repository.default_branch.as_ref().map(short);
    let head = match head(&state, &row).await? {
        Some(head) => Some(head).filter(|head| head.starts_with("refs/")),
        None => origin.branch,
    };
    Ok(Json(Info { branch: head.as_ref().map(short), default_branch }))
}

/// The most bytes of a `HEAD`.
const HEAD_BYTES: u64 = 1024;

/// Returns what the newest snapshot has in `.git/HEAD`: a branch's full name, or a commit.
async fn head(state: &ApiState, row: &SessionRow) -> Result<Option<String>, ApiError> {
    let Some(blobs) = state.blobs() else { return Ok(None) };
    let org = row.at.org;
    let newest = state.store().workspace_packs(row.at.location_ref()).await?.pop();
    let Some(tree) = newest.and_then(|newest| newest.tree.as_str().parse::<TreeId>().ok()) else {
        return Ok(None);
    };
    let packs = state.store().pack_names(org, vec![row.at.location.clone()]).await?;
    let path = Path::new(".git/HEAD");
    let read = snapshots::file_at(blobs, &org.to_string(), packs, &tree, path, HEAD_BYTES).await;
    let bytes = read.map_err(ApiError::internal)?;
    let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    Ok(text.map(|text| text.strip_prefix("ref: ").map_or(text.clone(), str::to_owned)))
}

/// Returns the directory's newest session with its repository.
async fn origin(
    state: &ApiState,
    org: OrgId,
    named: &Named,
) -> Result<Option<(SessionRow, OriginRow)>, ApiError> {
    let Some(row) = newest(state, org, named).await? else { return Ok(None) };
    let origin = state.store().origin(row.at.location_ref()).await?;
    Ok(origin.map(|origin| (row, origin)))
}

async fn newest(
    state: &ApiState,
    org: OrgId,
    named: &Named,
) -> Result<Option<SessionRow>, ApiError> {
    let directory = named.or_default(state.settings()).await?.directory;
    let of = SessionsOf::Directory(directory);
    let newest = SessionFilter { of, with_archived: true, ..SessionFilter::default() };
    Ok(state.store().sessions(org, newest, 1).await?.rows.into_iter().next())
}

/// Lists the changes without their patches.
pub(crate) async fn status(
    _: CanRead,
    looker: Looker,
    State(state): State<ApiState>,
    named: Named,
) -> Result<Json<Vec<FileView>>, ApiError> {
    let files = changes(&state, &looker, &named, None).await?;
    Ok(Json(files.into_iter().map(|file| FileView { patch: None, ..file }).collect()))
}

/// Returns what the working tree of a checkout on this machine has that its commit has not, as git says; where git cannot be
/// asked, the changes of the directory's newest session. `context`: the lines around a change, `None` for no patches.
async fn changes(
    state: &ApiState,
    looker: &Looker,
    named: &Named,
    context: Option<u32>,
) -> Result<Vec<FileView>, ApiError> {
    if let Some(local) = local_directory(state, looker, named).await? {
        let shows = local.shown_names(&settings_at(state, looker, named).await?);
        if let Some(changes) = local.checkouts.read_changes(&local.path, context, shows).await? {
            return Ok(changes.into_iter().map(Into::into).collect());
        }
    }
    match newest(state, looker.org, named).await? {
        Some(row) => Ok(diff(state, &row, DiffQuery::default()).await?.files),
        None => Ok(Vec::new()),
    }
}
