//! Changes of a directory's files for stock clients, which show them as those of version control.
//!
//! They are the changes of the directory's newest session, as its snapshots have them. Git is not asked.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use store::{SessionFilter, SessionsOf};

use super::place::Named;
use crate::ApiState;
use crate::act::{DiffQuery, diff};
use crate::error::ApiError;
use crate::surface::extract::{CanRead, Params};
use crate::view::FileView;

#[derive(Debug, Deserialize)]
pub(crate) struct Query {
    mode: Option<Mode>,
    /// The lines around a change. A patch has as many as its snapshots were compared with.
    #[serde(rename = "context")]
    _context: Option<String>,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Git,
    Branch,
}

/// Lists the changes with their patches.
pub(crate) async fn diff_route(
    access: CanRead,
    State(state): State<ApiState>,
    named: Named,
    Params(query): Params<Query>,
) -> Result<Json<Vec<FileView>>, ApiError> {
    if query.mode == Some(Mode::Branch) {
        return Err(ApiError::NotOffered(
            "branches are not known to this service yet: leave `mode` out for the changes of the newest session",
        ));
    }
    changes(&state, access, &named).await.map(Json)
}

/// Lists the changes without their patches.
pub(crate) async fn status(
    access: CanRead,
    State(state): State<ApiState>,
    named: Named,
) -> Result<Json<Vec<FileView>>, ApiError> {
    let files = changes(&state, access, &named).await?;
    Ok(Json(files.into_iter().map(|file| FileView { patch: None, ..file }).collect()))
}

async fn changes(
    state: &ApiState,
    access: CanRead,
    named: &Named,
) -> Result<Vec<FileView>, ApiError> {
    let directory = named.or_default(state.settings()).await?.directory;
    let of = SessionsOf::Directory(directory);
    let newest = SessionFilter { of, with_archived: true, ..SessionFilter::default() };
    let newest = state.store().sessions(access.org, newest, 1).await?;
    match newest.rows.first() {
        Some(row) => Ok(diff(state, row, DiffQuery::default()).await?.files),
        None => Ok(Vec::new()),
    }
}
