//! The directory of a stock client's request: `?directory=`, otherwise the percent-encoded header
//! `x-opencode-directory`.

use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::Deserialize;

use crate::act::{Workspace, workspace};
use crate::error::ApiError;
use crate::settings::ApiSettings;
use crate::surface::extract::Params;
use crate::text::percent_decode;

const HEADER: &str = "x-opencode-directory";

/// The decoded directory of a request; `None` if it names none.
pub(crate) struct Named(pub(crate) Option<String>);

#[derive(Deserialize)]
struct Query {
    directory: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Params(query) = Params::<Query>::from_request_parts(parts, state).await?;
        let header = match parts.headers.get(HEADER) {
            Some(value) => Some(percent_decode(value.as_bytes()).ok_or_else(|| {
                ApiError::invalid("`x-opencode-directory` is a percent-encoded path")
            })?),
            None => None,
        };
        Ok(Self(query.directory.or(header).filter(|directory| !directory.is_empty())))
    }
}

impl Named {
    /// Returns the workspace of the named directory, otherwise of the service's default.
    pub(crate) async fn or_default(&self, settings: &ApiSettings) -> Result<Workspace, ApiError> {
        let default = settings.default_directory.as_deref().and_then(std::path::Path::to_str);
        workspace(settings, self.0.as_deref().or(default)).await
    }

    /// Returns the directory to filter by, in the form in which sessions have it; `None` selects all.
    pub(crate) async fn filter(&self, settings: &ApiSettings) -> Result<Option<String>, ApiError> {
        match &self.0 {
            Some(named) => Ok(Some(workspace(settings, Some(named)).await?.directory)),
            None => Ok(None),
        }
    }
}
