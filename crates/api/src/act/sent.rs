//! Repositories that exist on people's own machines: which commits are here, packs that are sent, and Locations that begin with
//! them.

use std::io::SeekFrom;

use axum::body::BodyDataStream;
use blobs::BlobKey;
use domain::{Feature, LocationRef, OrgId, RepositoryId, SessionId, TimestampMs, UploadId};
use futures::StreamExt;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{
    BlobUse, LocationKind, LocationRow, NewSent, NewUpload, ProjectRow, SentChanges, SentRow,
    Store, StoreError, UploadNote,
};
use tokio::io::{AsyncSeekExt, AsyncWriteExt, BufWriter};
use workspaces::{Oid, RefName};

use crate::ApiState;
use crate::error::ApiError;
use crate::spools::SpoolRoom;
use crate::text::{id, shown};

/// The host of repositories that have no server. No address has it, since a host has a dot or a port.
pub(super) const HOST: &str = "here";
/// The most commits in one question.
const MAX_ASKED: usize = 256;
/// The most bytes of a repository's name.
const MAX_NAME: usize = 64;
/// The digits of the first commit in a repository's path.
const ROOT_DIGITS: usize = 12;
/// The most bytes of an upload.
pub(crate) const MAX_UPLOAD: u64 = 1024 * 1024 * 1024;

/// A repository on somebody's machine.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct HereRequest {
    /// Its name: letters, digits and any of . _ -.
    name: String,
    /// Its first commit. Clones of one repository have the same.
    root: String,
    /// Commits of it, at most 256. The answer says which need not be sent.
    #[serde(default)]
    commits: Vec<String>,
}

/// The repository here.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HereView {
    /// The repository's id.
    id: String,
    /// The project of its sessions.
    #[serde(rename = "projectID")]
    project: String,
    /// The directory by which clients know it.
    directory: String,
    /// Of the commits that were named, those that are here with their whole history.
    known: Vec<String>,
    /// The most bytes of an upload.
    max_bytes: u64,
}

/// An upload.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UploadView {
    /// Its id, for a new session within the next hours.
    id: String,
    bytes: u64,
}

/// The state of a repository on somebody's machine, with which a session begins.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct SentRequest {
    /// The repository, as `POST /platform/repository` answered.
    repository: String,
    /// The commit that is checked out there.
    commit: String,
    /// Its branch, by its full name; none if there is none.
    branch: Option<String>,
    /// The upload with the commits that are not here yet.
    commits: Option<String>,
    /// What is not committed.
    changes: Option<ChangesRequest>,
}

/// Changes that are not committed: two commits and the upload that has them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct ChangesRequest {
    upload: String,
    /// The commit of what is staged.
    staged: String,
    /// The commit of all files.
    wip: String,
}

fn commit(text: &str) -> Result<String, ApiError> {
    let read = text.parse::<Oid>().map(|oid| oid.to_string());
    read.map_err(|_| {
        ApiError::Invalid(format!("`{}` is no commit: name it by its 40 digits", shown(text)))
    })
}

/// Finds a repository, or makes it, with its project, and says which commits are here.
pub(crate) async fn here(
    state: &ApiState,
    org: OrgId,
    request: HereRequest,
) -> Result<HereView, ApiError> {
    let HereRequest { name, root, commits } = request;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_name = !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(is_plain);
    if !is_name || name.starts_with('.') {
        return Err(ApiError::Invalid(format!(
            "a repository's name has 1 to {MAX_NAME} letters, digits and any of . _ -, and begins with no dot"
        )));
    }
    if commits.len() > MAX_ASKED {
        return Err(ApiError::Invalid(format!("name at most {MAX_ASKED} commits at once")));
    }
    let root = commit(&root)?;
    let commits = commits.iter().map(|text| commit(text)).collect::<Result<Vec<_>, _>>()?;
    let (store, now) = (state.store(), state.clock().now_ms());
    let level = store.feature_level().await?;
    if !level.has(Feature::Uploads) {
        return Err(StoreError::Feature { feature: Feature::Uploads, level }.into());
    }
    let path = format!("{name}-{}", &root[..ROOT_DIGITS]);
    let repository = store.ensure_repository(org, HOST.to_owned(), path.clone(), now).await?;
    let directory = format!("/{HOST}/{path}");
    let project = store.ensure_project(org, directory.clone(), now).await?.id;
    let known = store.known_commits(org, repository.id.clone(), commits).await?;
    let (id, project) = (repository.id.into(), project.into());
    Ok(HereView { id, project, directory, known, max_bytes: MAX_UPLOAD })
}

/// Stores a pack of git objects. Nothing is read of it here: a worker checks it in a sandbox.
pub(crate) async fn store_upload(
    state: &ApiState,
    org: OrgId,
    body: &mut BodyDataStream,
) -> Result<UploadView, ApiError> {
    let blobs = state.blobs().ok_or(ApiError::NotOffered(
        "this gateway cannot write the workers' blobs: ask another one, or give it --data-dir of the workers",
    ))?;
    let quota = state.settings().upload_quota;
    // Asked again when it is noted; what is full now need not be sent.
    let stored = state.store().bytes_of_uploads(org).await?;
    let left = quota.checked_sub(stored).filter(|left| *left > 0).ok_or_else(full)?;
    let mut room = state.spools().begin_spool(org);
    let (file, bytes) = spool_pack(body, &mut room, left).await?;
    let now = state.clock().now_ms();
    let upload = Store::mint_upload(now);
    let key = BlobKey::new(&org.to_string(), BlobUse::Upload.kind(), upload.as_str());
    let key = key.map_err(ApiError::internal)?;
    blobs.put_file(&key, file).await.map_err(ApiError::internal)?;
    drop(room);
    let new = NewUpload { id: upload.clone(), bytes, now };
    if let UploadNote::Full { .. } = state.store().add_upload(org, new, quota).await? {
        // Otherwise it would stay for as long as a blob without a row does.
        blobs.delete(&key).await.map_err(ApiError::internal)?;
        return Err(full());
    }
    Ok(UploadView { id: upload.into(), bytes })
}

/// The error of an organisation whose uploads have as many bytes as they may.
fn full() -> ApiError {
    ApiError::Barred {
        status: StatusCode::TOO_MANY_REQUESTS,
        code: "UPLOADS_FULL",
        message: "the organisation's uploads take as much storage as they may. Each is forgotten after a day, unless a \
                  session that began with it has not run: start such sessions or delete them, push the repository to a \
                  server and use its address, or ask the operator to raise --upload-quota",
    }
}

/// Keeps a pack of at most `most` bytes in an unnamed file, which is returned at its beginning.
async fn spool_pack(
    body: &mut BodyDataStream,
    room: &mut SpoolRoom,
    most: u64,
) -> Result<(std::fs::File, u64), ApiError> {
    let file = room.make_file().await?;
    let (mut file, mut bytes, mut head) = (BufWriter::new(file), 0, Vec::new());
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|_| ApiError::invalid("the body did not arrive whole"))?;
        bytes += piece.len() as u64;
        if bytes > MAX_UPLOAD {
            return Err(ApiError::TooLarge(format!(
                "an upload has at most {MAX_UPLOAD} bytes; push the repository to a server and use its address"
            )));
        }
        if bytes > most {
            return Err(full());
        }
        if head.len() < PACK.len() {
            head.extend(piece.iter().take(PACK.len() - head.len()));
            if !PACK.starts_with(&head) {
                return Err(not_a_pack());
            }
        }
        room.take_bytes(piece.len() as u64).await?;
        file.write_all(&piece).await.map_err(ApiError::internal)?;
    }
    if head != PACK {
        return Err(not_a_pack());
    }
    file.flush().await.map_err(ApiError::internal)?;
    let mut file = file.into_inner();
    file.seek(SeekFrom::Start(0)).await.map_err(ApiError::internal)?;
    Ok((file.into_std().await, bytes))
}

/// The first bytes of each pack.
const PACK: &[u8] = b"PACK";

fn not_a_pack() -> ApiError {
    ApiError::invalid("the body is no pack of git objects; `git pack-objects --stdout` writes one")
}

/// Returns the Location of a new session that begins with what was sent.
pub(crate) async fn location_of_sent(
    store: &Store,
    org: OrgId,
    project: &ProjectRow,
    request: SentRequest,
    session: &SessionId,
    now: TimestampMs,
) -> Result<LocationRow, ApiError> {
    let directory = project.worktree.clone();
    let repository: RepositoryId = id(&request.repository)?;
    let found = store.repository(org, repository.clone()).await?;
    if found.host != HOST || directory != format!("/{HOST}/{}", found.path) {
        return Err(ApiError::invalid(
            "`sent` is for sessions of a project that `POST /platform/repository` has answered, with that repository",
        ));
    }
    let branch = request.branch.map(|name| match name.parse::<RefName>() {
        Ok(name) if name.branch().is_some() => Ok(name.to_string()),
        Ok(_) | Err(_) => Err(ApiError::Invalid(format!(
            "`{}` is no branch: write refs/heads/NAME",
            shown(&name)
        ))),
    });
    let branch = branch.transpose()?;
    let wip = request.changes.as_ref().map(|changes| {
        let (staged, wip) = (commit(&changes.staged)?, commit(&changes.wip)?);
        Ok::<_, ApiError>(SentChanges { staged, wip })
    });
    let upload = |text: &Option<String>| text.as_deref().map(id::<UploadId>).transpose();
    let sent = SentRow {
        commits: upload(&request.commits)?,
        changes: upload(&request.changes.map(|changes| changes.upload))?,
        wip: wip.transpose()?,
    };
    let commit = commit(&request.commit)?;
    let known = store.known_commits(org, repository.clone(), vec![commit.clone()]).await?;
    if known.is_empty() && sent.commits.is_none() {
        return Err(ApiError::invalid(
            "the commit is not here: send a pack with it to `POST /platform/upload`, and name it as `commits`",
        ));
    }
    let own = format!("{directory}#{session}");
    let kind = LocationKind::Managed;
    let location = store.ensure_location(org, project.id.clone(), kind, own, now).await?;
    let at = LocationRef { org, location: location.id.clone() };
    let new = NewSent { repository, commit, branch, sent, now };
    match store.begin_with_sent(at, new).await {
        Err(StoreError::NotFound) => {
            Err(ApiError::NotFound("an upload that the session begins with was"))
        }
        other => Ok(other?),
    }?;
    Ok(LocationRow { directory, ..location })
}
