//! Names that people look for: files and directories of a project after `@`, where its files are on this machine; and the
//! directories of an organisation's projects, as the released web client looks for them in its dialog for a new project.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use checkouts::{EntryKinds, FoundName, NameSearch};
use domain::OrgId;
use serde::Deserialize;
use serde_json::{Value, json};

use super::listing::{At, located};
use super::local::{LocalDirectory, Looker, local_directory};
use super::place::Named;
use super::settings::settings_at;
use crate::ApiState;
use crate::error::ApiError;
use crate::surface::extract::{CanRead, Params};

const NO_FILES: &str = "files of a workspace cannot be looked at from here yet: ask the agent to read them, or open \
                        them where they are";
/// The most names in an answer.
const MAX_FOUND: usize = 200;

#[derive(Debug, Deserialize)]
pub(crate) struct ListQuery {
    #[serde(default)]
    path: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FindQuery {
    #[serde(default)]
    query: String,
    dirs: Option<String>,
    r#type: Option<Kind>,
    limit: Option<usize>,
}

/// The kind of the wanted entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    File,
    Directory,
}

/// Lists the directories in one that lead to projects.
pub(crate) async fn list(
    access: CanRead,
    State(state): State<ApiState>,
    named: Named,
    Params(query): Params<ListQuery>,
) -> Result<Json<Value>, ApiError> {
    let known = known(&state, access.org).await?;
    let base = base(&state, &named);
    let at = format!("{base}/{}", query.path);
    let at = format!("/{}", parts(&at).collect::<Vec<_>>().join("/"));
    let names = children(&known, &at);
    if names.is_empty() && known.iter().any(|known| below(&at, known).is_some()) {
        return Err(ApiError::NotOffered(NO_FILES)); // the files of a project
    }
    let node = |name: String| {
        let absolute = format!("{}/{name}", at.trim_end_matches('/'));
        let path = below(&absolute, &base).unwrap_or(&name).to_owned();
        json!({ "name": name, "path": format!("{path}/"), "absolute": absolute, "type": "directory", "ignored": false })
    };
    Ok(Json(names.into_iter().take(MAX_FOUND).map(node).collect()))
}

impl FindQuery {
    /// Returns the search that the query means, with its own bound or `limit`.
    fn search(&self, limit: usize) -> NameSearch {
        let kinds = match (self.r#type, self.dirs.as_deref()) {
            (Some(Kind::File), _) | (None, Some("false")) => EntryKinds::Files,
            (Some(Kind::Directory), _) => EntryKinds::Directories,
            (None, Some(_) | None) => EntryKinds::All,
        };
        let limit = self.limit.unwrap_or(limit).clamp(1, MAX_FOUND);
        NameSearch { query: self.query.clone(), kinds, limit }
    }
}

/// Finds files and directories by their names, where this gateway may look into the directory. Elsewhere, and for a directory
/// that is no project, it finds the directories of projects.
pub(crate) async fn find(
    access: CanRead,
    looker: Looker,
    State(state): State<ApiState>,
    named: Named,
    Params(query): Params<FindQuery>,
) -> Result<Json<Vec<String>>, ApiError> {
    let wants_projects = query.r#type == Some(Kind::Directory);
    let known = known(&state, access.org).await?;
    let base = base(&state, &named);
    let is_project = known.contains(&base);
    if (is_project || !wants_projects)
        && let Some(local) = local_directory(&state, &looker, &named).await?
    {
        let found = find_names(&state, &looker, &named, &local, query.search(MAX_FOUND)).await?;
        // Who looks for directories may look for this project, by its own name: last, since it is no name in it.
        let wants_directories = wants_projects || query.dirs.as_deref() == Some("true");
        let is_own = is_project && wants_directories && is_named(&base, &query.query);
        let found = found.into_iter().map(shown_path).chain(is_own.then(|| "/".to_owned()));
        return Ok(Json(found.collect()));
    }
    if !wants_projects && (is_project || query.dirs.as_deref() != Some("true")) {
        return Err(ApiError::NotOffered(NO_FILES));
    }
    let wanted = query.query.to_lowercase();
    let found = known.iter().filter(|known| known.to_lowercase().contains(&wanted));
    let found = found.filter_map(|known| below(known, &base));
    Ok(Json(found.take(MAX_FOUND).map(|path| format!("{path}/")).collect()))
}

/// Returns whether the last part of a directory's path has these words, which are some.
fn is_named(directory: &str, words: &str) -> bool {
    let name = parts(directory).next_back().unwrap_or_default();
    !words.is_empty() && name.to_lowercase().contains(&words.to_lowercase())
}

/// Finds files and directories by their names, in the newer shape.
pub(crate) async fn second_find(
    access: CanRead,
    looker: Looker,
    State(state): State<ApiState>,
    At(named): At,
    Params(query): Params<FindQuery>,
) -> Result<Json<Value>, ApiError> {
    let local = local_directory(&state, &looker, &named).await?;
    let local = local.ok_or(ApiError::NotOffered(NO_FILES))?;
    let found = find_names(&state, &looker, &named, &local, query.search(MAX_FOUND)).await?;
    let entry = |found: FoundName| {
        let kind = if found.is_directory { "directory" } else { "file" };
        json!({ "path": shown_path(found), "type": kind })
    };
    located(&state, access.org, &named, found.into_iter().map(entry).collect()).await
}

async fn find_names(
    state: &ApiState,
    looker: &Looker,
    named: &Named,
    local: &LocalDirectory,
    search: NameSearch,
) -> Result<Vec<FoundName>, ApiError> {
    let settings = settings_at(state, looker, named).await?;
    let shows = local.shown_names(&settings);
    Ok(local.checkouts.find_names(&local.path, search, shows).await?)
}

/// Returns a path as clients know it: that of a directory ends with a slash.
fn shown_path(found: FoundName) -> String {
    if found.is_directory { found.path + "/" } else { found.path }
}

/// Returns the directories of an organisation's projects.
async fn known(state: &ApiState, org: OrgId) -> Result<BTreeSet<String>, ApiError> {
    let projects = state.store().projects(org).await?;
    Ok(projects.into_iter().map(|project| project.worktree).collect())
}

fn base(state: &ApiState, named: &Named) -> String {
    let default = state.settings().default_directory.as_deref().and_then(std::path::Path::to_str);
    let base = named.0.as_deref().or(default).unwrap_or("/");
    format!("/{}", parts(base).collect::<Vec<_>>().join("/"))
}

fn parts(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".")
}

/// Returns the part of `path` below `base`; empty if they are the same.
fn below<'a>(path: &'a str, base: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(base.trim_end_matches('/'))?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

/// Returns the names of the directories in `at` that are known or lead to known ones.
fn children(known: &BTreeSet<String>, at: &str) -> BTreeSet<String> {
    let first = |path: &String| {
        let name = below(path, at)?.split('/').next()?;
        (!name.is_empty()).then(|| name.to_owned())
    };
    known.iter().filter_map(first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_leads_to_a_project_is_listed() {
        let known = BTreeSet::from(["/home/ann/one", "/home/ann/two/x", "/srv"].map(str::to_owned));
        let names = |at: &str| Vec::from_iter(children(&known, at));
        assert_eq!(names("/"), ["home", "srv"]);
        assert_eq!(names("/home/ann"), ["one", "two"]);
        assert_eq!(names("/home/an"), Vec::<String>::new());
        assert_eq!(names("/srv"), Vec::<String>::new());
        assert_eq!(below("/srv", "/srv"), Some(""));
        assert_eq!(below("/srv/a", "/"), Some("srv/a"));
        assert_eq!(below("/srvx", "/srv"), None);
    }
}
