//! The directories of an organisation's projects, as the released web client looks for them in its dialog for a new
//! project. Only workers see the files of a workspace, so nothing else of a disk is listed.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use domain::OrgId;
use serde::Deserialize;
use serde_json::{Value, json};

use super::place::Named;
use crate::ApiState;
use crate::error::ApiError;
use crate::surface::extract::{CanRead, Params};

const NO_FILES: &str = "files of a workspace cannot be looked at from here yet: ask the agent to read them, or open \
                        them where they are";
/// The most directories in an answer.
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
    r#type: Option<String>,
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

/// Finds the directories of projects in one.
pub(crate) async fn find(
    access: CanRead,
    State(state): State<ApiState>,
    named: Named,
    Params(query): Params<FindQuery>,
) -> Result<Json<Vec<String>>, ApiError> {
    if query.dirs.as_deref() != Some("true") && query.r#type.as_deref() != Some("directory") {
        return Err(ApiError::NotOffered(NO_FILES));
    }
    let base = base(&state, &named);
    let wanted = query.query.to_lowercase();
    let known = known(&state, access.org).await?;
    let found = known.iter().filter(|known| known.to_lowercase().contains(&wanted));
    let found = found.filter_map(|known| below(known, &base));
    Ok(Json(found.take(MAX_FOUND).map(|path| format!("{path}/")).collect()))
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

fn parts(path: &str) -> impl Iterator<Item = &str> {
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
