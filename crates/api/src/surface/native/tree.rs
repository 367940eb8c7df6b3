//! A session's descendants, and the usage of the whole tree.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::{Path, State};
use domain::TurnUsage;
use schemars::JsonSchema;
use serde::Serialize;
use store::Expected;

use crate::ApiState;
use crate::error::ApiError;
use crate::surface::at::At;
use crate::surface::dialect::Dialect;
use crate::surface::extract::{CanRead, LargeRead};
use crate::view::{SessionView, TokensView, Usd};

pub(crate) async fn children(
    access: CanRead,
    _large: LargeRead,
    dialect: Dialect,
    State(state): State<ApiState>,
    Path(at): Path<At>,
) -> Result<Json<Vec<SessionView>>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let children = state.store().children(access.org, row.at.session).await?;
    dialect.sessions(&state, children).await
}

/// Tokens used, and their cost.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct UsedView {
    tokens: TokensView,
    cost: Usd,
    /// The highest expected cost of all requests, in nano-USD shown as USD. It exceeds `cost` when answers are
    /// shorter than their limit or caches are read.
    estimate: Usd,
    /// The versions of the price tables used.
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

/// The usage of a session alone, and of its whole tree.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UsageView {
    session: UsedView,
    tree: UsedView,
    /// The number of sessions in the tree, with this one.
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
