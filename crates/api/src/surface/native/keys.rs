//! Keys of people and service accounts.

use access::{Actor, KeyDecision, KeyDeed, Need, OrgRole, Scopes, decide_key};
use auth::MadeKey;
use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use domain::{KeyId, TimestampMs};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{CredentialInUse, KeyRow, MAX_KEYS, SeenRoles, StoreError, Via};

use super::me::name;
use crate::ApiState;
use crate::error::ApiError;
use crate::surface::Parting;
use crate::surface::extract::{Believes, Body, Caller, Params};
use crate::text::id;

const DAY: TimestampMs = 24 * 60 * 60 * 1000;
const HOUR: TimestampMs = 60 * 60 * 1000;
/// How long a key works unless its maker says otherwise, and the longest.
const DAYS: i64 = 90;
const MOST_DAYS: i64 = 366;
/// The longest grace of a replaced secret.
const MOST_HOURS: i64 = 24;
/// The most characters in the name of a service account.
const MAX_SERVICE: usize = 40;

/// Keys, the newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct KeysView {
    data: Vec<KeyView>,
}

/// A key without its secrets.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct KeyView {
    id: String,
    name: String,
    /// Whose it is.
    owner: String,
    scopes: Vec<String>,
    created_at: i64,
    /// When it stops working; null for a key that was made before keys had an end.
    expires_at: Option<i64>,
    /// Within a minute.
    last_used_at: Option<i64>,
    revoked_at: Option<i64>,
}

impl From<KeyRow> for KeyView {
    fn from(row: KeyRow) -> Self {
        Self {
            id: row.id,
            name: row.name,
            owner: row.owner.to_string(),
            scopes: row.scopes,
            created_at: row.created_ms,
            expires_at: row.expires_ms,
            last_used_at: row.used_ms,
            revoked_at: row.revoked_ms,
        }
    }
}

/// A key with its text, which is shown once.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NewKeyView {
    /// The text. Nobody can read it again.
    key: String,
    #[serde(flatten)]
    of: KeyView,
}

/// An answer with 201.
pub(crate) struct Created(pub(crate) NewKeyView);

impl IntoResponse for Created {
    fn into_response(self) -> Response {
        (StatusCode::CREATED, Json(self.0)).into_response()
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct KeysQuery {
    /// Those of everybody, for who may manage them.
    #[serde(default)]
    all: bool,
}

pub(crate) async fn list(
    caller: Caller,
    State(state): State<ApiState>,
    Params(query): Params<KeysQuery>,
) -> Result<Json<KeysView>, ApiError> {
    if query.all {
        caller.wants(Need::KeyManage)?;
    }
    let owner = (!query.all).then(|| caller.standing().actor.clone());
    let rows = state.store().keys(caller.org(), owner).await?;
    Ok(Json(KeysView { data: rows.into_iter().map(KeyView::from).collect() }))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct NewKeyRequest {
    /// For people.
    name: String,
    /// `read`, `prompt`, `administer`, `*` or names of needs; everything without it.
    scopes: Option<Vec<String>>,
    /// 1 to 366; 90 without it.
    days: Option<i64>,
    /// The service account that gets it, made if there is none: letters, digits and `-`. Without it, the caller.
    service: Option<String>,
}

/// Makes a key of the caller's, or of a service account. It has no scope that the caller has not.
pub(crate) async fn create(
    caller: Caller,
    believes: Believes,
    State(state): State<ApiState>,
    Body(request): Body<NewKeyRequest>,
) -> Result<Created, ApiError> {
    let name = name(&request.name)?;
    let scopes = request.scopes.unwrap_or_else(|| vec![Scopes::EVERYTHING.to_owned()]);
    let asked = Scopes::parse(scopes.iter().map(String::as_str)).map_err(ApiError::invalid)?;
    if asked == Scopes::default() {
        return Err(ApiError::Invalid("a key has at least one scope".to_owned()));
    }
    if !caller.standing().scopes.contains(asked) {
        return Err(ApiError::Invalid(
            "a key makes no key with a scope that it does not have itself; name fewer `scopes`"
                .to_owned(),
        ));
    }
    wants_recent(&caller, &believes, asked)?;
    let days = request.days.unwrap_or(DAYS);
    if !(1..=MOST_DAYS).contains(&days) {
        return Err(ApiError::Invalid(format!("`days` is 1 to {MOST_DAYS}")));
    }
    let owner = match request.service {
        Some(service) => of_service(&state, &caller, &service).await?,
        None => caller.standing().actor.clone(),
    };
    if owner.id() == Actor::FIRST_SERVICE {
        ensure(&state, &caller, &owner, OrgRole::Admin, "first").await?;
    }
    let now = state.clock().now_ms();
    let seen = (owner != caller.standing().actor).then(|| caller.seen_roles(None));
    let made = MadeKey::of(&owner);
    let row = made.row(owner, name, scopes, Some(now + days * DAY));
    match state.store().create_owned_key(caller.org(), row, seen, now).await {
        Ok(row) => Ok(Created(NewKeyView { key: made.text, of: row.into() })),
        Err(StoreError::NotFound) => Err(ApiError::Conflict("its owner is disabled".to_owned())),
        Err(StoreError::Conflict { .. }) => Err(ApiError::Conflict(format!(
            "an owner has at most {MAX_KEYS} keys that work: revoke one that is not needed"
        ))),
        Err(error) => Err(error.into()),
    }
}

/// The needs with which somebody can give rights away.
const GIVING: [Need; 4] = [Need::PeopleManage, Need::KeyManage, Need::OwnerManage, Need::SsoManage];

/// Passes unless an old login asks for a key that could do more than last: make keys, people or owners, or begin a login
/// that is recent, as a key with all scopes does.
fn wants_recent(caller: &Caller, believes: &Believes, scopes: Scopes) -> Result<(), ApiError> {
    let gives = GIVING.into_iter().any(|need| scopes.has(need) && caller.standing().may(need));
    if gives || scopes == Scopes::all() { believes.wants_recent() } else { Ok(()) }
}

/// Returns a service account by its name, and makes it if there is none.
async fn of_service(state: &ApiState, caller: &Caller, service: &str) -> Result<Actor, ApiError> {
    caller.wants(Need::KeyManage)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let service = service.strip_prefix("svc_").unwrap_or(service);
    if service.is_empty() || service.len() > MAX_SERVICE || !service.chars().all(is_plain) {
        return Err(ApiError::Invalid(format!(
            "`service` has 1 to {MAX_SERVICE} letters, digits and `-`"
        )));
    }
    let actor: Actor = format!("svc_{service}").parse().map_err(ApiError::invalid)?;
    if actor.id() != Actor::FIRST_SERVICE {
        ensure(state, caller, &actor, OrgRole::Member, service).await?;
    }
    Ok(actor)
}

/// Makes a service account unless it is there. That of keys from before there were people has no row at first.
async fn ensure(
    state: &ApiState,
    caller: &Caller,
    actor: &Actor,
    role: OrgRole,
    name: &str,
) -> Result<(), ApiError> {
    let (org, now, name) = (caller.org(), state.clock().now_ms(), Some(name.to_owned()));
    match state.store().create_principal(org, actor.clone(), role, name, now).await {
        Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct RotateRequest {
    /// How long the secret before works still: 0 to 24 hours; 24 without it.
    hours: Option<i64>,
}

/// Gives a key a second secret: one's own, or a service account's. A secret of another person's key would act as them.
pub(crate) async fn rotate(
    caller: Caller,
    believes: Believes,
    State(state): State<ApiState>,
    Path(key): Path<String>,
    Body(request): Body<RotateRequest>,
) -> Result<Created, ApiError> {
    let hours = request.hours.unwrap_or(MOST_HOURS);
    if !(0..=MOST_HOURS).contains(&hours) {
        return Err(ApiError::Invalid(format!("`hours` is 0 to {MOST_HOURS}")));
    }
    let (key, row, seen) = find_key(&state, &caller, &believes, KeyDeed::Rotate, &key).await?;
    // A scope of a newer build is wider than anything but everything.
    let wider = Scopes::parse(row.scopes.iter().map(String::as_str)).unwrap_or(Scopes::all());
    if !caller.standing().scopes.contains(wider) {
        return Err(ApiError::Invalid("the key has scopes that this one has not".to_owned()));
    }
    wants_recent(&caller, &believes, wider)?;
    let Some(made) = MadeKey::again(&row.owner, &key) else {
        return Err(ApiError::Conflict(
            "a key of the old form has one secret: make a new key, then revoke this one".to_owned(),
        ));
    };
    let now = state.clock().now_ms();
    let hash = auth::hash(&made.text).to_vec();
    match state.store().rotate_key(caller.org(), key, hash, now + hours * HOUR, seen, now).await {
        Ok(row) => Ok(Created(NewKeyView { key: made.text, of: row.into() })),
        Err(StoreError::Conflict { .. }) => Err(ApiError::Conflict(
            "the key was rotated before, and its first secret works still: wait for its end"
                .to_owned(),
        )),
        Err(error) => Err(error.into()),
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct RevokeQuery {
    /// Stops what the key has admitted too: it is in the wrong hands.
    #[serde(default)]
    stop_work: bool,
}

/// The answer to a request that may have revoked its own key.
pub(crate) struct Revoked(KeyView);

impl IntoResponse for Revoked {
    fn into_response(self) -> Response {
        let mut response = Json(self.0).into_response();
        response.extensions_mut().insert(Parting);
        response
    }
}

/// Revokes a key, with all logins that it began. Here it stops working at once, elsewhere within 5 s. Only an owner
/// revokes the key of another owner.
pub(crate) async fn revoke(
    caller: Caller,
    believes: Believes,
    State(state): State<ApiState>,
    Path(key): Path<String>,
    Params(query): Params<RevokeQuery>,
) -> Result<Revoked, ApiError> {
    let (key, _, seen) = find_key(&state, &caller, &believes, KeyDeed::Revoke, &key).await?;
    let (org, now) = (caller.org(), state.clock().now_ms());
    let row = state.store().revoke_key(org, key.clone(), query.stop_work, seen, now).await?;
    state.authenticator().forget(&CredentialInUse { org, via: Via::Key(key) });
    Ok(Revoked(row.into()))
}

/// Returns a key to which the caller may do `deed`, with the roles on which that was decided; without them for the
/// caller's own. To whoever manages no keys, others' are not there.
async fn find_key(
    state: &ApiState,
    caller: &Caller,
    believes: &Believes,
    deed: KeyDeed,
    key: &str,
) -> Result<(KeyId, KeyRow, Option<SeenRoles>), ApiError> {
    let key: KeyId = id(key)?;
    let org = caller.org();
    let row = state.store().key(org, key.clone()).await?;
    let is_own = row.owner == caller.standing().actor;
    // A service account is never an owner, and the first one may have no row.
    let role = match &row.owner {
        person @ Actor::User(_) if !is_own => {
            state.store().principal(org, person.clone()).await?.role
        }
        Actor::User(_) | Actor::Service(_) => OrgRole::Admin,
    };
    match decide_key(caller.standing(), deed, &row.owner, role) {
        KeyDecision::Yes => {}
        KeyDecision::Hidden => return Err(ApiError::NotFound("the key was")),
        KeyDecision::AnotherPerson => {
            return Err(ApiError::Barred {
                status: StatusCode::FORBIDDEN,
                code: "NOT_YOUR_KEY",
                message: "a new secret of this key would act as another person: let them rotate it, or revoke it",
            });
        }
        KeyDecision::OwnerOnly => caller.wants(Need::OwnerManage)?,
    }
    if !is_own && role == OrgRole::Owner {
        believes.wants_recent()?; // like all that only owners may
    }
    let target = row.owner.is_person().then_some(role);
    let seen = (!is_own).then(|| caller.seen_roles(target));
    Ok((key, row, seen))
}
