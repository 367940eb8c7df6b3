//! Finds the Location for the directory that a client names.

use domain::{LocationRef, OrgId, SessionId, TimestampMs};
use store::{LocationKind, LocationRow, ProjectRow, Store};
use workspaces::Address;

use super::sent::HOST as HERE;
use crate::error::ApiError;
use crate::settings::ApiSettings;
use crate::text::shown;

/// The name of a managed workspace, for clients and models.
pub(crate) const MANAGED: &str = "/workspace";
const MAX_PATH_BYTES: usize = 4_096;

/// A directory, and how it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Workspace {
    pub(crate) kind: LocationKind,
    pub(crate) directory: String,
    /// The repository that it begins with. Its sessions share no workspace.
    pub(crate) repository: Option<Address>,
}

/// Returns the workspace of a directory: a managed one for none or one beneath `/workspace`, otherwise a directory of
/// this machine if the service allows those.
///
/// # Errors
/// 400 that says what to do.
pub(crate) async fn workspace(
    settings: &ApiSettings,
    directory: Option<&str>,
) -> Result<Workspace, ApiError> {
    let Some(directory) = directory.filter(|directory| !directory.is_empty()) else {
        return Ok(managed(MANAGED.to_owned()));
    };
    let directory = normal(directory)?;
    if let Some(address) = repository(settings, &directory).await? {
        let (kind, directory) = (LocationKind::Managed, address.directory());
        return Ok(Workspace { kind, directory, repository: Some(address) });
    }
    if is_sent(&directory)
        && !(settings.allow_local_paths && tokio::fs::metadata(&directory).await.is_ok())
    {
        return Ok(managed(directory));
    }
    let is_managed = directory == MANAGED || directory.starts_with("/workspace/");
    if !settings.allow_local_paths {
        return if is_managed { Ok(managed(directory)) } else { Err(no_local_paths(&directory)) };
    }
    match tokio::fs::canonicalize(&directory).await {
        Ok(path) if path.is_dir() => {
            let path = path.into_os_string().into_string().map_err(|_| {
                ApiError::invalid("the directory's real path is not valid UTF-8; choose another")
            })?;
            Ok(Workspace { kind: LocationKind::Local, directory: path, repository: None })
        }
        Ok(_) => Err(ApiError::Invalid(format!("`{}` is not a directory", shown(&directory)))),
        Err(_) if is_managed => Ok(managed(directory)),
        Err(error) => Err(ApiError::Invalid(format!(
            "the directory `{}` cannot be used on the service's machine: {}",
            shown(&directory),
            reason(&error)
        ))),
    }
}

/// Returns the repository that a directory names, as `/HOST/PATH@REF`. A directory of this machine comes first.
async fn repository(settings: &ApiSettings, directory: &str) -> Result<Option<Address>, ApiError> {
    let Some(address) = Address::of_directory(directory) else { return Ok(None) };
    if settings.allow_local_paths && tokio::fs::metadata(directory).await.is_ok() {
        return Ok(None);
    }
    address.map(Some).map_err(|error| ApiError::Invalid(format!("`{}`: {error}", shown(directory))))
}

/// Returns the system's message without its number: `No such file or directory`.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.rfind(" (os error ").map_or_else(|| text.clone(), |at| text[..at].to_owned())
}

/// Returns whether a directory is that of a repository which people send from their own machines.
fn is_sent(directory: &str) -> bool {
    let name =
        directory.strip_prefix('/').and_then(|rest| rest.strip_prefix(HERE)?.strip_prefix('/'));
    name.is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

fn sent_only(directory: &str) -> ApiError {
    ApiError::Invalid(format!(
        "a session of `{}` begins with the files of somebody's machine: start it there with `opencode-cloud run --here`",
        shown(directory)
    ))
}

fn managed(directory: String) -> Workspace {
    Workspace { kind: LocationKind::Managed, directory, repository: None }
}

fn no_local_paths(directory: &str) -> ApiError {
    ApiError::Invalid(format!(
        "this service does not use directories of its machine such as `{}`: leave the directory out \
         for a workspace of the service, send your repository with `opencode-cloud run --here`, or start a service on \
         loopback with --allow-local-paths",
        shown(directory)
    ))
}

/// Returns an absolute path without empty and `.` components, and refuses `..`.
fn normal(directory: &str) -> Result<String, ApiError> {
    let refuse = |why: &str| Err(ApiError::Invalid(format!("`{}`: {why}", shown(directory))));
    if directory.len() > MAX_PATH_BYTES {
        return refuse("a directory has at most 4096 bytes");
    }
    if !directory.starts_with('/') {
        return refuse("a directory is an absolute path");
    }
    if directory.chars().any(char::is_control) {
        return refuse("a directory has no control characters");
    }
    if directory.split('/').any(|name| name == "..") {
        return refuse("a directory has no `..`");
    }
    let names: Vec<&str> =
        directory.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    Ok(format!("/{}", names.join("/")))
}

/// Returns the Location in which a session is to begin, in its project, and creates it if it is new. One that begins with a
/// repository is the session's own.
pub(crate) async fn location_of(
    store: &Store,
    org: OrgId,
    project: &ProjectRow,
    workspace: Workspace,
    session: &SessionId,
    now: TimestampMs,
) -> Result<LocationRow, ApiError> {
    let Workspace { kind, directory, repository } = workspace;
    let Some(address) = repository else {
        if is_sent(&directory) {
            return Err(sent_only(&directory));
        }
        return Ok(store.ensure_location(org, project.id.clone(), kind, directory, now).await?);
    };
    if project.worktree != directory {
        return Err(ApiError::Invalid(format!(
            "the project is {} and the repository {}: ask for that repository's project first",
            shown(&project.worktree),
            shown(&directory)
        )));
    }
    let Address { host, path, wanted } = address;
    let own = format!("{directory}#{session}");
    let location = store.ensure_location(org, project.id.clone(), kind, own, now).await?;
    let repository = store.ensure_repository(org, host, path, now).await?;
    let at = LocationRef { org, location: location.id.clone() };
    let wanted = wanted.map(|wanted| wanted.to_string());
    store.begin_with_repository(at, repository.id, wanted).await?;
    // Clients know all sessions of a repository by its one directory.
    Ok(LocationRow { directory, ..location })
}

/// Returns a workspace's project and Location, and creates them if they are new.
///
/// # Errors
/// 400 for a repository, whose workspaces are made with sessions.
pub(crate) async fn location(
    store: &Store,
    org: OrgId,
    workspace: Workspace,
    now: TimestampMs,
) -> Result<(ProjectRow, LocationRow), ApiError> {
    if workspace.repository.is_some() {
        return Err(ApiError::invalid(
            "a workspace of a repository begins with a new session: create one there",
        ));
    }
    if is_sent(&workspace.directory) {
        return Err(sent_only(&workspace.directory));
    }
    let project = store.ensure_project(org, workspace.directory.clone(), now).await?;
    let location = store
        .ensure_location(org, project.id.clone(), workspace.kind, workspace.directory, now)
        .await?;
    Ok((project, location))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_absolute_and_made_plain() {
        assert_eq!(normal("/a//b/./c/").expect("plain"), "/a/b/c");
        assert_eq!(normal("/").expect("plain"), "/");
        for bad in ["a/b", "/a/../b", "/a\0b", ""] {
            assert!(normal(bad).is_err(), "{bad:?}");
        }
        assert!(normal(&format!("/{}", "x".repeat(MAX_PATH_BYTES))).is_err());
    }
}
