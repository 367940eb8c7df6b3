//! Who one is.

use access::{Actor, Need, Standing};
use axum::Json;
use axum::extract::State;
use domain::OrgId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{PrincipalChange, PrincipalChanged, PrincipalRow, StoreError, Via};

use crate::ApiState;
use crate::error::ApiError;
use crate::surface::extract::{Believes, Body, Caller};

/// Who one is, and what one may do.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MeView {
    actor: ActorView,
    organisation: OrganisationView,
    /// `viewer`, `member`, `admin` or `owner`.
    role: String,
    /// The needs that one may: role and key together.
    may: Vec<&'static str>,
    /// The login, if it is one.
    login: Option<LoginView>,
    /// Whether the person has no name yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    first: bool,
    /// Whether sessions may work in directories of the service's machine.
    local_paths: bool,
}

/// A person or service account.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ActorView {
    /// `user` or `service`.
    kind: &'static str,
    id: String,
    name: Option<String>,
    email: Option<String>,
}

/// An organisation.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OrganisationView {
    id: String,
    name: String,
}

/// A login in a browser.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LoginView {
    pub(crate) id: String,
    /// When it ends at the latest.
    pub(crate) expires_at: i64,
}

pub(crate) async fn show(
    caller: Caller,
    believes: Believes,
    State(state): State<ApiState>,
) -> Result<Json<MeView>, ApiError> {
    let login = match caller.via() {
        Via::Login(id) => {
            let expires_at = believes.0.expires_ms().unwrap_or_default();
            Some(LoginView { id: id.to_string(), expires_at })
        }
        Via::Key(_) => None,
    };
    let row = row_of(&state, &caller).await?;
    Ok(Json(me_of(&state, caller.org(), row, Some(caller.standing().clone()), login).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct MeRequest {
    name: String,
}

/// The most characters of a name.
const MAX_NAME: usize = 80;

/// Returns a name as it is kept.
pub(crate) fn name(text: &str) -> Result<String, ApiError> {
    let name = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(ApiError::Invalid(format!("a name has 1 to {MAX_NAME} characters")));
    }
    Ok(name)
}

/// Gives oneself a name. A service account has the one that it was made with.
pub(crate) async fn change(
    caller: Caller,
    believes: Believes,
    State(state): State<ApiState>,
    Body(request): Body<MeRequest>,
) -> Result<Json<MeView>, ApiError> {
    if !caller.standing().actor.is_person() {
        let message = "a service account keeps its name; an admin can make another one";
        return Err(ApiError::Conflict(message.to_owned()));
    }
    let change = PrincipalChange { name: Some(name(&request.name)?), ..PrincipalChange::default() };
    let (org, actor, now) = (caller.org(), caller.standing().actor.clone(), state.clock().now_ms());
    match state.store().change_principal(org, actor, change, None, now).await? {
        PrincipalChanged::Done(_) | PrincipalChanged::LastOwner => {}
    }
    show(caller, believes, State(state)).await
}

/// Returns the row of whoever calls. The first service account may have none.
async fn row_of(state: &ApiState, caller: &Caller) -> Result<PrincipalRow, ApiError> {
    let standing = caller.standing();
    match state.store().principal(caller.org(), standing.actor.clone()).await {
        Err(StoreError::NotFound) => Ok(PrincipalRow {
            actor: standing.actor.clone(),
            role: standing.role,
            name: None,
            email: None,
            created_ms: 0,
            disabled_ms: None,
            seen_ms: None,
        }),
        found => Ok(found?),
    }
}

/// Describes a person or service account. Without a standing it is that of a login.
pub(crate) async fn me_of(
    state: &ApiState,
    org: OrgId,
    row: PrincipalRow,
    standing: Option<Standing>,
    login: Option<LoginView>,
) -> Result<MeView, ApiError> {
    let organisation = state.store().organisation(org).await?;
    let of_login =
        || Standing { actor: row.actor.clone(), role: row.role, scopes: access::Scopes::all() };
    let standing = standing.unwrap_or_else(of_login);
    let first = matches!(row.actor, Actor::User(_)) && row.name.is_none();
    Ok(MeView {
        actor: ActorView {
            kind: row.actor.kind(),
            id: row.actor.id().to_owned(),
            name: row.name,
            email: row.email,
        },
        organisation: OrganisationView {
            id: format!("org_{}", org.0.simple()),
            name: organisation.name,
        },
        role: standing.effective_role().to_string(),
        may: standing.needs().map(Need::as_str).collect(),
        login,
        first,
        local_paths: state.settings().allow_local_paths,
    })
}
