//! The people and service accounts of an organisation.

use access::{Actor, Need, OrgRole};
use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{PrincipalChange, PrincipalChanged, PrincipalRow};

use super::me::name;
use crate::ApiState;
use crate::error::ApiError;
use crate::surface::Parting;
use crate::surface::extract::{Believes, Body, Caller, Params};

/// People, or service accounts.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PeopleView {
    data: Vec<PersonView>,
}

/// A person or service account.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PersonView {
    id: String,
    name: Option<String>,
    email: Option<String>,
    /// `viewer`, `member`, `admin` or `owner`.
    role: &'static str,
    disabled: bool,
    created_at: i64,
    /// Within a minute.
    last_seen_at: Option<i64>,
}

impl From<PrincipalRow> for PersonView {
    fn from(row: PrincipalRow) -> Self {
        Self {
            id: row.actor.id().to_owned(),
            name: row.name,
            email: row.email,
            role: row.role.as_str(),
            disabled: row.disabled_ms.is_some(),
            created_at: row.created_ms,
            last_seen_at: row.seen_ms,
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct PeopleQuery {
    /// Service accounts in place of people.
    #[serde(default)]
    services: bool,
}

pub(crate) async fn list(
    caller: Caller,
    State(state): State<ApiState>,
    Params(query): Params<PeopleQuery>,
) -> Result<Json<PeopleView>, ApiError> {
    let all = state.store().principals(caller.org()).await?;
    let data = all.into_iter().filter(|row| row.actor.is_person() != query.services);
    Ok(Json(PeopleView { data: data.map(PersonView::from).collect() }))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct PersonRequest {
    /// `viewer`, `member`, `admin` or `owner`.
    role: Option<String>,
    /// Who is disabled loses logins and streams within seconds, and what they admitted stops.
    disabled: Option<bool>,
    name: Option<String>,
}

/// The answer to a change that may have ended the caller's own login.
pub(crate) struct Changed(pub(crate) PersonView);

impl IntoResponse for Changed {
    fn into_response(self) -> Response {
        let mut response = Json(self.0).into_response();
        response.extensions_mut().insert(Parting);
        response
    }
}

/// Changes a person's role, disables or enables them. Only an owner makes an owner or changes one.
pub(crate) async fn change(
    caller: Caller,
    believes: Believes,
    State(state): State<ApiState>,
    Path(user): Path<String>,
    Body(request): Body<PersonRequest>,
) -> Result<Changed, ApiError> {
    let actor: Actor = user.parse().map_err(ApiError::invalid)?;
    let role = request.role.as_deref().map(str::parse::<OrgRole>).transpose();
    let role = role.map_err(ApiError::invalid)?;
    if role == Some(OrgRole::Owner) && !actor.is_person() {
        return Err(ApiError::Invalid(
            "a service account is never an owner; give it `admin`".to_owned(),
        ));
    }
    let before = state.store().principal(caller.org(), actor.clone()).await?;
    if before.role == OrgRole::Owner || role == Some(OrgRole::Owner) {
        caller.wants(Need::OwnerManage)?;
        believes.wants_recent()?;
    }
    let name = request.name.as_deref().map(name).transpose()?;
    let change = PrincipalChange { role, disabled: request.disabled, name };
    let (seen, now) = (caller.seen_roles(Some(before.role)), state.clock().now_ms());
    match state.store().change_principal(caller.org(), actor, change, Some(seen), now).await? {
        PrincipalChanged::Done(row) => Ok(Changed(row.into())),
        PrincipalChanged::LastOwner => Err(ApiError::Conflict(
            "this is the last owner of the organisation: make another one first".to_owned(),
        )),
    }
}
