//! Sessions below a session, and what all of them used.

use axum::Json;
use axum::extract::{Path, State};
use domain::TurnUsage;
use serde::Serialize;

use super::at::At;
use crate::ApiState;
use crate::dialect::Dialect;
use crate::error::ApiError;
use crate::extract::CanRead;
use crate::view::{SessionView, TokensView, Usd};

pub(crate) async fn children(
    access: CanRead,
    dialect: Dialect,
    State(state): State<ApiState>,
    Path(at): Path<At>,
) -> Result<Json<Vec<SessionView>>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let children = state.store().children(access.org, row.at.session).await?;
    dialect.sessions(&state, children).await
}

/// What was used, and what it cost.
#[derive(Debug, Serialize)]
struct UsedView {
    tokens: TokensView,
    cost: Usd,
}

impl From<TurnUsage> for UsedView {
    fn from(usage: TurnUsage) -> Self {
        Self { tokens: usage.into(), cost: Usd(usage.cost) }
    }
}

/// What a session used, alone and with all sessions below it.
#[derive(Debug, Serialize)]
pub(super) struct UsageView {
    session: UsedView,
    tree: UsedView,
    /// Sessions of the tree, this one included.
    sessions: i64,
}

pub(super) async fn usage(
    access: CanRead,
    State(state): State<ApiState>,
    Path(at): Path<At>,
) -> Result<Json<UsageView>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let used = state.store().tree_usage(access.org, row.at.session).await?;
    Ok(Json(UsageView {
        session: used.session.into(),
        tree: used.tree.into(),
        sessions: used.sessions,
    }))
}
