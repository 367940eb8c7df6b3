//! Connections to identity providers: an owner makes, tests and activates them.

use std::collections::BTreeMap;

use access::Actor;
use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use domain::{IdMint, IdpId, Stamp};
use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderValue, StatusCode};
use oidc::{Issuer, MappedRole, Rules};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{AlertKind, IdpChange, IdpRow, NewAlert, Via};

use super::me::name;
use crate::ApiState;
use crate::act::sso::{self, ATTEMPT_LIFE, Report, StoredRules};
use crate::error::ApiError;
use crate::surface::extract::{Body, Caller, CanAdminister};
use crate::text::{id, secret};

const MAX_CLIENT_ID: usize = 512;
const MAX_ENTRIES: usize = 200;
const MAX_ENTRY: usize = 256;

/// The connections of an organisation.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ConnectionsView {
    data: Vec<ConnectionView>,
}

/// A connection to an identity provider.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ConnectionView {
    id: String,
    name: String,
    /// `draft`, `tested` or `active`.
    state: &'static str,
    issuer: String,
    client_id: String,
    has_client_secret: bool,
    /// The address to enter at the provider, for browsers that come back.
    redirect_url: String,
    /// The address to enter there for browsers that come back from a logout.
    logout_url: String,
    /// Scopes that are asked for besides `openid`.
    scopes: Vec<String>,
    groups_claim: String,
    /// Roles by group: `admin`, `member` or `viewer`. Empty: groups do not matter.
    #[schemars(with = "BTreeMap<String, String>")]
    groups: BTreeMap<String, MappedRole>,
    /// The role of everybody else.
    default_role: &'static str,
    /// E-mail domains whose people may join. Empty: everybody whom the provider signs in.
    domains: Vec<String>,
    /// The only algorithm that may sign its tokens, once it is active.
    algorithm: Option<String>,
    tested_at: Option<i64>,
    created_at: i64,
    /// The last test's report.
    report: Option<Report>,
}

fn view(state: &ApiState, row: IdpRow) -> Result<ConnectionView, ApiError> {
    let StoredRules { scopes, rules } = StoredRules::read(&row.rules)?;
    let report = row.report.as_deref().map(serde_json::from_str).transpose();
    Ok(ConnectionView {
        redirect_url: sso::callback(state, &row.id)?.into(),
        logout_url: sso::own_url(state, "/login")?.into(),
        id: row.id.to_string(),
        name: row.name,
        state: match (row.is_active, row.tested_ms) {
            (true, _) => "active",
            (false, Some(_)) => "tested",
            (false, None) => "draft",
        },
        issuer: row.issuer,
        client_id: row.client_id,
        has_client_secret: row.sealed.is_some(),
        scopes,
        groups_claim: rules.groups_claim,
        groups: rules.groups,
        default_role: rules.default_role.as_str(),
        domains: rules.domains,
        algorithm: row.algorithm,
        tested_at: row.tested_ms,
        created_at: row.created_ms,
        report: report.map_err(ApiError::internal)?,
    })
}

pub(crate) async fn list(
    caller: CanAdminister,
    State(state): State<ApiState>,
) -> Result<Json<ConnectionsView>, ApiError> {
    let rows = state.store().idps(caller.org).await?;
    let data = rows.into_iter().map(|row| view(&state, row)).collect::<Result<_, _>>()?;
    Ok(Json(ConnectionsView { data }))
}

pub(crate) async fn show(
    caller: CanAdminister,
    State(state): State<ApiState>,
    Path(idp): Path<String>,
) -> Result<Json<ConnectionView>, ApiError> {
    let row = state.store().idp(caller.org, id(&idp)?).await?;
    Ok(Json(view(&state, row)?))
}

/// A connection to be made.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct NewConnectionRequest {
    name: String,
    /// As the provider's own configuration names it, word for word.
    issuer: String,
    client_id: String,
    /// Absent for a public client.
    client_secret: Option<String>,
    /// Scopes to ask for besides `openid`; `email` and `profile` by default.
    scopes: Option<Vec<String>>,
    /// The claim that has groups; `groups` by default.
    groups_claim: Option<String>,
    /// Roles by group: `admin`, `member` or `viewer`.
    groups: Option<BTreeMap<String, String>>,
    /// `viewer` by default.
    default_role: Option<String>,
    /// E-mail domains whose people may join.
    domains: Option<Vec<String>>,
}

/// A change of a connection. What is absent stays.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct ConnectionRequest {
    name: Option<String>,
    /// Only while the connection is not active.
    client_id: Option<String>,
    client_secret: Option<String>,
    /// Scopes to ask for besides `openid`; `email` and `profile` by default.
    scopes: Option<Vec<String>>,
    /// The claim that has groups; `groups` by default.
    groups_claim: Option<String>,
    /// Roles by group: `admin`, `member` or `viewer`.
    groups: Option<BTreeMap<String, String>>,
    /// `viewer` by default.
    default_role: Option<String>,
    /// E-mail domains whose people may join.
    domains: Option<Vec<String>>,
}

impl ConnectionRequest {
    fn changes_rules(&self) -> bool {
        let Self {
            name: _,
            client_id: _,
            client_secret: _,
            scopes,
            groups_claim,
            groups,
            default_role,
            domains,
        } = self;
        scopes.is_some()
            || groups_claim.is_some()
            || groups.is_some()
            || default_role.is_some()
            || domains.is_some()
    }

    /// Changes rules, and checks what comes of it.
    fn onto(self, mut before: StoredRules, issuer: &Issuer) -> Result<StoredRules, ApiError> {
        let StoredRules { scopes, rules } = &mut before;
        if let Some(new) = self.scopes {
            *scopes = entries("scopes", new)?;
            if scopes.iter().any(|scope| scope.contains(char::is_whitespace)) {
                return Err(ApiError::invalid(
                    "`scopes` is a list: each scope is a text of its own",
                ));
            }
            scopes.retain(|scope| scope != "openid"); // it is always asked for
        }
        if let Some(claim) = self.groups_claim {
            rules.groups_claim = entries("groups_claim", vec![claim])?.remove(0);
        }
        if let Some(new) = self.groups {
            let names = entries("groups", new.keys().cloned().collect())?;
            let roles = new.values().map(|role| role.parse::<MappedRole>());
            let roles: Vec<_> = roles.collect::<Result<_, _>>().map_err(ApiError::invalid)?;
            rules.groups = names.into_iter().zip(roles).collect();
        }
        if let Some(role) = self.default_role {
            rules.default_role = role.parse().map_err(ApiError::invalid)?;
        }
        if let Some(new) = self.domains {
            let new = new
                .into_iter()
                .map(|domain| domain.trim().trim_start_matches('@').to_ascii_lowercase());
            rules.domains = entries("domains", new.collect())?;
            let is_domain = |domain: &String| {
                domain.contains('.')
                    && domain.chars().all(|c| c.is_alphanumeric() || ".-".contains(c))
            };
            if let Some(bad) = rules.domains.iter().find(|domain| !is_domain(domain)) {
                return Err(ApiError::Invalid(format!(
                    "`{bad}` is no e-mail domain; write it like example.com"
                )));
            }
        }
        if issuer.is_public() && rules.domains.is_empty() {
            return Err(ApiError::invalid(
                "this provider signs in everybody who has an account there: name the e-mail domains of your organisation \
                 in `domains`",
            ));
        }
        Ok(before)
    }
}

fn entries(field: &str, list: Vec<String>) -> Result<Vec<String>, ApiError> {
    let is_bad = |text: &String| {
        text.trim().is_empty() || text.len() > MAX_ENTRY || text.chars().any(char::is_control)
    };
    if list.len() > MAX_ENTRIES || list.iter().any(is_bad) {
        let message =
            format!("`{field}` has at most {MAX_ENTRIES} texts of 1 to {MAX_ENTRY} bytes");
        return Err(ApiError::Invalid(message));
    }
    Ok(list)
}

fn default_rules() -> StoredRules {
    let rules = Rules {
        groups_claim: "groups".to_owned(),
        groups: BTreeMap::new(),
        default_role: MappedRole::Viewer,
        domains: Vec::new(),
    };
    StoredRules { scopes: vec!["email".to_owned(), "profile".to_owned()], rules }
}

fn client_id(text: &str) -> Result<String, ApiError> {
    let text = text.trim();
    if text.is_empty() || text.len() > MAX_CLIENT_ID || text.chars().any(char::is_control) {
        return Err(ApiError::Invalid(format!("`client_id` has 1 to {MAX_CLIENT_ID} bytes")));
    }
    Ok(text.to_owned())
}

/// The answer to a request that has made a connection.
pub(crate) struct MadeConnection(ConnectionView);

impl IntoResponse for MadeConnection {
    fn into_response(self) -> Response {
        (StatusCode::CREATED, Json(self.0)).into_response()
    }
}

/// Makes a connection. Its provider is not asked yet.
pub(crate) async fn create(
    caller: CanAdminister,
    State(state): State<ApiState>,
    Body(request): Body<NewConnectionRequest>,
) -> Result<MadeConnection, ApiError> {
    let issuer = Issuer::parse(&request.issuer).map_err(ApiError::invalid)?;
    state.credentials().egress().rules().check(issuer.url()).map_err(ApiError::invalid)?;
    let NewConnectionRequest { scopes, groups_claim, groups, default_role, domains, .. } = request;
    let rules = ConnectionRequest {
        scopes,
        groups_claim,
        groups,
        default_role,
        domains,
        ..ConnectionRequest::default()
    };
    let rules = rules.onto(default_rules(), &issuer)?;
    let now = state.clock().now_ms();
    let new = IdpId::mint(&mut IdMint::after(Stamp::default(), now));
    let version = 1;
    let sealed = match request.client_secret.as_deref() {
        Some(text) => Some(sealed(&state, caller.org, &new, version, text).await?),
        None => None,
    };
    let row = IdpRow {
        id: new,
        name: name(&request.name)?,
        issuer: issuer.as_str().to_owned(),
        client_id: client_id(&request.client_id)?,
        sealed,
        version,
        rules: rules.text(),
        is_active: false,
        algorithm: None,
        report: None,
        tested_ms: None,
        created_ms: now,
    };
    let row = state.store().create_idp(caller.org, row).await?;
    let row = row.map_err(|refused| ApiError::Conflict(refused.to_string()))?;
    Ok(MadeConnection(view(&state, row)?))
}

async fn sealed(
    state: &ApiState,
    org: domain::OrgId,
    idp: &IdpId,
    version: i64,
    text: &str,
) -> Result<store::Sealed, ApiError> {
    let text = secret("client_secret", text)?.trim();
    Ok(state.credentials().seal_of(org, idp.as_str(), version, text.as_bytes()).await?)
}

/// Changes a connection. Its issuer never changes.
pub(crate) async fn change(
    caller: CanAdminister,
    State(state): State<ApiState>,
    Path(idp): Path<String>,
    Body(request): Body<ConnectionRequest>,
) -> Result<Json<ConnectionView>, ApiError> {
    let before = state.store().idp(caller.org, id(&idp)?).await?;
    let issuer = Issuer::parse(&before.issuer).map_err(ApiError::internal)?;
    let secret = match request.client_secret.as_deref() {
        Some(text) => {
            Some(Some(sealed(&state, caller.org, &before.id, before.version + 1, text).await?))
        }
        None => None,
    };
    let name = request.name.as_deref().map(name).transpose()?;
    let client_id = request.client_id.as_deref().map(client_id).transpose()?;
    let rules = if request.changes_rules() {
        Some(request.onto(StoredRules::read(&before.rules)?, &issuer)?.text())
    } else {
        None
    };
    let change = IdpChange { name, client_id, secret, rules };
    let row = state.store().change_idp(caller.org, before.id, before.version, change).await?;
    let row = row.map_err(|refused| ApiError::Conflict(refused.to_string()))?;
    Ok(Json(view(&state, row)?))
}

/// A test to be made in a browser.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TestView {
    /// The address to open, once.
    url: String,
    /// When it stops working.
    expires_at: i64,
}

/// Makes the address of one test. Its end is a page that shows the claims and what would happen; nobody is logged in.
pub(crate) async fn test(
    caller: CanAdminister,
    State(state): State<ApiState>,
    Path(idp): Path<String>,
) -> Result<Json<TestView>, ApiError> {
    let idp: IdpId = id(&idp)?;
    let ticket = oidc::random_text();
    let expires_at = state.clock().now_ms() + ATTEMPT_LIFE;
    let hash = auth::hash(&ticket).to_vec();
    state.store().set_idp_ticket(caller.org, idp.clone(), hash, expires_at).await?;
    let url = sso::own_url(&state, &format!("/auth/start/{idp}?ticket={ticket}"))?;
    Ok(Json(TestView { url: url.into(), expires_at }))
}

/// Lets people sign in by a connection that was tested, and tells all owners.
pub(crate) async fn activate(
    caller: Caller,
    State(state): State<ApiState>,
    Path(idp): Path<String>,
) -> Result<Json<ConnectionView>, ApiError> {
    let idp: IdpId = id(&idp)?;
    let (org, now) = (caller.org(), state.clock().now_ms());
    let row = state.store().idp(org, idp.clone()).await?;
    let about = json!({ "name": row.name, "issuer": row.issuer }).to_string();
    let by = caller.standing().actor.clone();
    let alert = NewAlert { kind: AlertKind::SsoActivated, by, about };
    let row = state.store().activate_idp(org, idp, alert, now).await?;
    let row = row.map_err(|refused| ApiError::Conflict(refused.to_string()))?;
    let (idp, issuer) = (&row.id, &row.issuer);
    let by = caller.via().id();
    tracing::info!(%idp, %issuer, by, "a connection to an identity provider was activated");
    Ok(Json(view(&state, row)?))
}

/// Deletes a connection. Logins that began there end; the people stay.
pub(crate) async fn remove(
    caller: CanAdminister,
    State(state): State<ApiState>,
    Path(idp): Path<String>,
) -> Result<StatusCode, ApiError> {
    state.store().delete_idp(caller.org, id(&idp)?, state.clock().now_ms()).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct LinkRequest {
    /// The page to come back to.
    #[serde(rename = "return")]
    return_to: Option<String>,
}

/// The answer to a request that begins a sign-in: the provider's address, and the cookie that knows the browser again. With
/// it, the ends of older ones.
pub(crate) struct Begun {
    view: BegunView,
    cookies: Vec<Option<HeaderValue>>,
}

/// A sign-in that has begun.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BegunView {
    /// The provider's address, for this browser.
    url: String,
}

impl IntoResponse for Begun {
    fn into_response(self) -> Response {
        let mut response = Json(self.view).into_response();
        for cookie in self.cookies.into_iter().flatten() {
            response.headers_mut().append(SET_COOKIE, cookie);
        }
        response
    }
}

/// Begins a sign-in that makes the provider's account one of whoever is logged in.
pub(crate) async fn link(
    caller: Caller,
    State(state): State<ApiState>,
    Path(idp): Path<String>,
    headers: HeaderMap,
    Body(request): Body<LinkRequest>,
) -> Result<Begun, ApiError> {
    let row = state.store().idp(caller.org(), id(&idp)?).await?;
    let (Actor::User(user), Via::Login(_)) = (caller.standing().actor.clone(), caller.via()) else {
        return Err(ApiError::Conflict(
            "an account is linked in a browser by the person who is logged in there; open the console".to_owned(),
        ));
    };
    if !row.is_active {
        return Err(ApiError::Conflict(
            "this connection is not active; test and activate it first".to_owned(),
        ));
    }
    let sent =
        sso::start_link(&state, caller.org(), &row, user, request.return_to.as_deref()).await;
    let sent = sent.map_err(|failure| match failure {
        sso::SsoFailure::Service(error) => error,
        refused @ (sso::SsoFailure::Provider(_)
        | sso::SsoFailure::Unknown
        | sso::SsoFailure::Again
        | sso::SsoFailure::Disabled
        | sso::SsoFailure::Linked) => ApiError::Conflict(refused.to_string()),
    })?;
    let site = &state.settings().site;
    let name = site.sso_cookie(&sent.state);
    let mut cookies = site.drop_sso_cookies(&headers);
    cookies.push(site.set_sso_cookie(&name, &sent.browser, ATTEMPT_LIFE / 1000));
    Ok(Begun { view: BegunView { url: sent.url.into() }, cookies })
}
