//! Directories of this machine that a request may look into.

use std::path::{Path, PathBuf};

use access::Need;
use axum::extract::FromRequestParts;
use checkouts::{CheckoutBranch, Checkouts};
use domain::{OrgId, RuleAction};
use http::request::Parts;
use session_rules::ReadScope;
use settings::Effective;

use super::place::Named;
use crate::ApiState;
use crate::act::local_checkout;
use crate::error::ApiError;
use crate::surface::extract::Caller;

/// Who looks, and whether they may look into any directory: who may begin a session in one reads all of it with that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Looker {
    pub(crate) org: OrgId,
    may_prompt: bool,
}

impl FromRequestParts<ApiState> for Looker {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let caller = Caller::from_request_parts(parts, state).await?;
        let may_prompt = caller.wants(Need::SessionPrompt).is_ok();
        Ok(Self { org: caller.org(), may_prompt })
    }
}

/// A directory of this machine that the caller may look into.
pub(super) struct LocalDirectory {
    pub(super) checkouts: Checkouts,
    /// Its real path.
    pub(super) path: PathBuf,
}

impl LocalDirectory {
    /// Returns the branch of the checkout that it belongs to; `None` outside of one, or if that cannot be told now.
    pub(super) async fn read_branch(&self) -> Option<CheckoutBranch> {
        let branch = self.checkouts.read_branch(&self.path).await;
        branch.inspect_err(|error| tracing::debug!(%error, "a directory shows no branch")).ok()?
    }

    /// Returns what says whether a file's name may be shown: not if the rules of the directory forbid to read the file.
    pub(super) fn shown_names(
        &self,
        settings: &Effective,
    ) -> impl Fn(&Path) -> bool + Send + use<> {
        let directory = self.path.to_string_lossy();
        let agent = &settings.default_agent;
        let scope = ReadScope::of_directory(&settings.permissions, agent, &directory);
        move |path| scope.judge(&path.to_string_lossy()) != RuleAction::Deny
    }
}

/// Returns the directory of a request, if it is one of this machine that the caller may look into: any for callers who may
/// begin sessions, otherwise the service's default and those of the organisation's projects.
pub(super) async fn local_directory(
    state: &ApiState,
    looker: &Looker,
    named: &Named,
) -> Result<Option<LocalDirectory>, ApiError> {
    let Ok(place) = named.or_default(state.settings()).await else { return Ok(None) };
    let Some((checkouts, path)) = local_checkout(state, &place.directory).await else {
        return Ok(None);
    };
    if !looker.may_prompt && named.0.is_some() {
        let projects = state.store().projects(looker.org).await?;
        if projects.iter().all(|project| project.worktree != place.directory) {
            return Ok(None);
        }
    }
    Ok(Some(LocalDirectory { checkouts: checkouts.clone(), path }))
}
