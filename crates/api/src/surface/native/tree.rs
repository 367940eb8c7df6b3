//! Sessions below a session, and what all of them used.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::{Path, State};
use domain::TurnUsage;
use serde::Serialize;
use store::Expected;

use crate::ApiState;
use crate::error::ApiError;
use crate::surface::at::At;
use crate::surface::dialect::Dialect;
use crate::surface::extract::CanRead;
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
#[serde(rename_all = "camelCase")]
struct UsedView {
    tokens: TokensView,
    cost: Usd,
    /// The most that its requests were expected to cost, before they were sent; more than `cost` where answers are shorter
    /// than they may be, or caches are read.
    estimate: Usd,
    /// The tables of prices that they are paid with.
    price_versions: BTreeSet<String>,
}

impl UsedView {
    fn new(usage: TurnUsage, expected: Expected) -> Self {
        Self {
            tokens: usage.into(),
            cost: Usd(usage.cost),
            estimate: Usd(expected.nanos),
            price_versions: expected.price_versions,
        }
    }
}

/// What a session used, alone and with all sessions below it.
#[derive(Debug, Serialize)]
pub(crate) struct UsageView {
    session: UsedView,
    tree: UsedView,
    /// Sessions of the tree, this one included.
    sessions: i64,
}

pub(crate) async fn usage(
    access: CanRead,
    State(state): State<ApiState>,
    Path(at): Path<At>,
) -> Result<Json<UsageView>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let used = state.store().tree_usage(access.org, row.at.session).await?;
    Ok(Json(UsageView {
        session: UsedView::new(used.session, used.session_expected),
        tree: UsedView::new(used.tree, used.tree_expected),
        sessions: used.sessions,
    }))
}
