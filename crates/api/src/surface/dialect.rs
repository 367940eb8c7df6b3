//! The two dialects, our own and that of stock clients. The path decides which one a request uses.

use std::convert::Infallible;

use axum::Json;
use axum::extract::FromRequestParts;
use http::request::Parts;
use store::SessionRow;

use crate::ApiState;
use crate::act::read_session_rules;
use crate::error::ApiError;
use crate::view::SessionView;

/// The dialect of an answer. A handler that takes it serves routes of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Native,
    Stock,
}

impl<S: Sync> FromRequestParts<S> for Dialect {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(parts.uri.path()))
    }
}

impl Dialect {
    pub(crate) fn of(path: &str) -> Self {
        let steps: Vec<&str> = path.split('/').skip(1).collect();
        match steps[..] {
            ["project", "init"] => Self::Native,
            // Of projects, the released contract has these, and `/project` itself, which both have.
            ["project", _] | ["project", _, "directories"] | ["project", "git", "init"] => {
                Self::Stock
            }
            ["project" | "platform" | "healthz" | "readyz", ..] => Self::Native,
            _ => Self::Stock,
        }
    }

    /// Returns the view of a session, with a summary of its changes of files.
    pub(crate) async fn session(
        self,
        state: &ApiState,
        row: SessionRow,
    ) -> Result<Json<SessionView>, ApiError> {
        let mut summaries =
            state.summaries().read_for(state.store(), std::slice::from_ref(&row)).await?;
        let summary = summaries.remove(&row.at.session).unwrap_or_default();
        let rules = read_session_rules(state, &row.at).await?;
        Ok(Json(self.view(row, state).summed(summary).with_rules(rules)))
    }

    /// Returns the views of several sessions of one organisation.
    pub(crate) async fn sessions(
        self,
        state: &ApiState,
        rows: Vec<SessionRow>,
    ) -> Result<Json<Vec<SessionView>>, ApiError> {
        let mut summaries = state.summaries().read_for(state.store(), &rows).await?;
        let one = |row: SessionRow| {
            let summary = summaries.remove(&row.at.session).unwrap_or_default();
            self.view(row, state).summed(summary)
        };
        Ok(Json(rows.into_iter().map(one).collect()))
    }

    fn view(self, row: SessionRow, state: &ApiState) -> SessionView {
        let version = &state.settings().version;
        match self {
            Self::Native => SessionView::native(row, version),
            Self::Stock => SessionView::stock(row, version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_one_dialect() {
        let native = ["/healthz", "/platform/me", "/project", "/project/init", "/project/p/agent"];
        let native = native.into_iter().chain(["/project/p/session/s/log", "/project/p/nothing"]);
        for path in native {
            assert_eq!(Dialect::of(path), Dialect::Native, "{path}");
        }
        let stock = ["/session", "/project/current", "/project/p", "/project/p/directories"];
        for path in stock.into_iter().chain(["/project/git/init", "/projects", "/", "/api/agent"]) {
            assert_eq!(Dialect::of(path), Dialect::Stock, "{path}");
        }
    }
}
