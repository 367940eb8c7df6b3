//! Sign-ins at identity providers: how they begin, how they end, and what comes of them.

mod attempt;
mod report;

use access::OrgRole;
use auth::{Token, hash};
use domain::{IdMint, IdpId, LoginId, OrgId, Stamp, TimestampMs, UserId};
use llm_client::Secret;
use oidc::{Attempt, Connection, Issuer, MappedRole, OidcError, Return, Rules, SignIn};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{BeganBy, IdpRow, Joined, Linked, Purpose, StoreError, VouchedPerson};
use url::Url;

use self::attempt::CarriedAttempt;
pub(crate) use self::report::Report;
use self::report::outcome;
use super::login::{Beginning, Visit, begin as begin_login, former, replace};
use crate::ApiState;
use crate::error::ApiError;

/// How long a browser may stay at the provider.
pub(crate) const ATTEMPT_LIFE: TimestampMs = 10 * 60 * 1000;
/// The version to which the secrets of an attempt and of a login are bound: they are never replaced.
const ONCE: i64 = 0;
/// The first segments of the console's pages, to which a sign-in may return.
const PAGES: [&str; 2] = ["", "o"];
/// The longest page to which one returns: a browser keeps 4,096 bytes of a cookie.
const MAX_PAGE: usize = 1_024;
/// The page to which a sign-in returns unless it names another.
const HOME: &str = "/";

/// A connection's rules as its row holds them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredRules {
    pub(crate) scopes: Vec<String>,
    #[serde(flatten)]
    pub(crate) rules: Rules,
}

impl StoredRules {
    pub(crate) fn read(text: &str) -> Result<Self, ApiError> {
        serde_json::from_str(text).map_err(ApiError::internal)
    }

    pub(crate) fn text(&self) -> String {
        json!(self).to_string()
    }
}

/// The reason why a sign-in ends without its purpose. Its browser gets the code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SsoFailure {
    /// The provider, its token or the connection's rules.
    #[error(transparent)]
    Provider(#[from] OidcError),
    /// There is no such connection, or it is not active.
    #[error("there is no such way to sign in")]
    Unknown,
    /// The state is unknown, was used, is too old, or of another browser.
    #[error("this sign-in was over, or began in another browser: begin it again")]
    Again,
    /// The person is disabled.
    #[error("this person is disabled")]
    Disabled,
    /// The person is known as somebody else.
    #[error("the provider's account belongs to another person of the organisation")]
    Linked,
    /// A fault of the service, or its database.
    #[error(transparent)]
    Service(#[from] ApiError),
}

impl SsoFailure {
    /// Returns the code for `/login?error=`. The console has a sentence for each.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Provider(error) => error.code(),
            Self::Unknown => "unknown_provider",
            Self::Again => "start_again",
            Self::Disabled => "disabled",
            Self::Linked => "linked_elsewhere",
            Self::Service(_) => "unavailable",
        }
    }
}

impl From<StoreError> for SsoFailure {
    fn from(error: StoreError) -> Self {
        Self::Service(error.into())
    }
}

/// A browser's wishes for a sign-in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// The page to come back to.
    pub(crate) return_to: Option<&'a str>,
    /// Makes it a test.
    pub(crate) ticket: Option<&'a str>,
    /// The person proves anew who they are.
    pub(crate) anew: bool,
}

/// A sign-in that is to begin.
struct Errand {
    purpose: Purpose,
    return_to: String,
    anew: bool,
    former: Option<LoginId>,
}

impl Errand {
    fn to(page: Option<&str>, anew: bool) -> Self {
        let page = page.and_then(|page| oidc::own_page(page, &PAGES));
        let return_to = page.unwrap_or_else(|| HOME.to_owned());
        Self { purpose: Purpose::Login, return_to, anew, former: None }
    }
}

/// A sign-in that has begun.
pub(crate) struct Sent {
    /// The provider's address.
    pub(crate) url: Url,
    /// The cookie by which the browser is known again.
    pub(crate) browser: String,
    /// Comes back with the browser.
    pub(crate) state: String,
}

/// The end of a sign-in.
pub(crate) enum Ended {
    /// The browser is logged in.
    LoggedIn { cookie: Token, to: String },
    /// Whoever was logged in is also known by the connection.
    Linked { to: String },
    /// A test of the connection `name`. `to`: the page that wanted it; none when it began at a command line.
    Tested { report: Box<Report>, name: String, to: Option<String> },
}

/// Opens a connection for its sign-ins, and reads its rules.
pub(crate) async fn connection(
    state: &ApiState,
    org: OrgId,
    row: &IdpRow,
) -> Result<(Connection, StoredRules), ApiError> {
    let rules = StoredRules::read(&row.rules)?;
    let client_secret = match &row.sealed {
        Some(sealed) => {
            let bytes =
                state.credentials().open_of(org, row.id.as_str(), row.version, sealed).await?;
            let text = String::from_utf8(bytes).map_err(ApiError::internal)?;
            Some(Secret::new(&text))
        }
        None => None,
    };
    let algorithm = match (&row.algorithm, row.is_active) {
        (Some(pinned), true) => Some(pinned.parse().map_err(ApiError::internal)?),
        (Some(_) | None, _) => None,
    };
    let maps_groups = rules.rules.maps_groups();
    let connection = Connection {
        issuer: Issuer::parse(&row.issuer).map_err(ApiError::internal)?,
        client_id: row.client_id.clone(),
        client_secret,
        redirect: callback(state, &row.id)?,
        scopes: rules.scopes.clone(),
        algorithm,
        groups_claim: maps_groups.then(|| rules.rules.groups_claim.clone()),
    };
    Ok((connection, rules))
}

/// Returns the address to which the provider sends browsers back. Only the configured URL counts, never the request's.
pub(crate) fn callback(state: &ApiState, idp: &IdpId) -> Result<Url, ApiError> {
    own_url(state, &format!("/auth/callback/{idp}"))
}

pub(crate) fn own_url(state: &ApiState, path: &str) -> Result<Url, ApiError> {
    let url = format!("{}{path}", state.settings().site.url());
    Url::parse(&url).map_err(ApiError::internal)
}

/// Begins a sign-in at a connection that is active, or a test at one that may not be.
pub(crate) async fn start(
    state: &ApiState,
    idp: IdpId,
    asked: Asked<'_>,
    visit: &Visit,
) -> Result<Sent, SsoFailure> {
    let (org, row) = found(state, &idp).await?;
    let purpose = match asked.ticket {
        Some(ticket) => {
            let (hash, now) = (hash(ticket).to_vec(), state.clock().now_ms());
            if !state.store().take_idp_ticket(org, idp, hash, now).await? {
                return Err(SsoFailure::Again);
            }
            Purpose::Test
        }
        None if row.is_active => Purpose::Login,
        None => return Err(SsoFailure::Unknown),
    };
    let former = match &purpose {
        Purpose::Login => former(state, visit).await.filter(|(of, _)| *of == org).map(|(_, id)| id),
        Purpose::Test | Purpose::Link(_) => None,
    };
    send(state, org, &row, Errand { purpose, former, ..Errand::to(asked.return_to, asked.anew) })
        .await
}

/// Begins a sign-in that will make the connection's person somebody who is logged in.
pub(crate) async fn start_link(
    state: &ApiState,
    org: OrgId,
    row: &IdpRow,
    user: UserId,
    return_to: Option<&str>,
) -> Result<Sent, SsoFailure> {
    send(state, org, row, Errand { purpose: Purpose::Link(user), ..Errand::to(return_to, false) })
        .await
}

async fn found(state: &ApiState, idp: &IdpId) -> Result<(OrgId, IdpRow), SsoFailure> {
    let unknown = |error| {
        if matches!(error, StoreError::NotFound) { SsoFailure::Unknown } else { error.into() }
    };
    let org = state.store().organisation_of_idp(idp.clone()).await.map_err(unknown)?;
    let row = state.store().idp(org, idp.clone()).await.map_err(unknown)?;
    Ok((org, row))
}

async fn send(
    state: &ApiState,
    org: OrgId,
    row: &IdpRow,
    errand: Errand,
) -> Result<Sent, SsoFailure> {
    let (connection, _) = connection(state, org, row).await?;
    let (url, attempt) = if errand.anew {
        state.providers().begin_anew(&connection).await?
    } else {
        state.providers().begin(&connection).await?
    };
    // A cookie has an end: a page whose address is longer than that is not come back to.
    let return_to =
        if errand.return_to.len() > MAX_PAGE { HOME.to_owned() } else { errand.return_to };
    let until = state.clock().now_ms() + ATTEMPT_LIFE;
    let of_attempt = attempt.state.clone();
    let carried = CarriedAttempt::new(attempt, errand.purpose, return_to, errand.former, until);
    let browser = carried.seal(state, org, &row.id).await?;
    Ok(Sent { url, browser, state: of_attempt })
}

/// A sign-in whose browser has come back.
struct TakenAttempt {
    secrets: Attempt,
    purpose: Purpose,
    return_to: String,
    former: Option<LoginId>,
}

/// Uses a sign-in up that the browser carries, or that a gateway of the build before keeps for it.
async fn take(
    state: &ApiState,
    org: OrgId,
    row: &IdpRow,
    browser: &str,
    back_state: &str,
) -> Result<TakenAttempt, SsoFailure> {
    let (state_hash, now) = (hash(back_state).to_vec(), state.clock().now_ms());
    if CarriedAttempt::is_carried_by(browser) {
        let opened = CarriedAttempt::open(state, org, &row.id, browser).await;
        let (attempt, secret) = opened.ok_or(SsoFailure::Again)?;
        if attempt.secrets.state != back_state {
            return Err(SsoFailure::Again);
        }
        let (idp, until) = (row.id.clone(), attempt.expires_ms);
        if !state.store().use_login_attempt(org, idp, state_hash, secret, until, now).await? {
            return Err(SsoFailure::Again);
        }
        let purpose = attempt.purpose();
        let CarriedAttempt { secrets, return_to, former, .. } = attempt;
        return Ok(TakenAttempt { secrets, purpose, return_to, former });
    }
    let browser_hash = hash(browser).to_vec();
    let idp = row.id.clone();
    let taken = state.store().take_login_attempt(org, idp, state_hash, browser_hash, now).await?;
    let attempt = taken.ok_or(SsoFailure::Again)?;
    let secrets = state.credentials().open_of(org, row.id.as_str(), ONCE, &attempt.sealed).await;
    let secrets = secrets.map_err(ApiError::from)?;
    let secrets: Attempt = serde_json::from_slice(&secrets).map_err(ApiError::internal)?;
    // A row may hold the secrets of another sign-in only if somebody has changed it.
    if secrets.state != back_state {
        return Err(SsoFailure::Again);
    }
    let store::LoginAttempt { purpose, return_to, former, .. } = attempt;
    Ok(TakenAttempt { secrets, purpose, return_to, former })
}

/// Ends a sign-in with what the browser brought back. The attempt is used up before the provider is asked.
pub(crate) async fn finish(
    state: &ApiState,
    idp: IdpId,
    browser: Option<&str>,
    back_state: Option<&str>,
    back: Return,
    visit: &Visit,
) -> Result<Ended, SsoFailure> {
    let (org, row) = found(state, &idp).await?;
    let (Some(browser), Some(back_state)) = (browser, back_state) else {
        return Err(SsoFailure::Again);
    };
    let attempt = take(state, org, &row, browser, back_state).await?;
    let (connection, rules) = connection(state, org, &row).await?;
    let signed_in = state.providers().finish(&connection, attempt.secrets, &back).await;
    match attempt.purpose {
        Purpose::Test => {
            let report = tested(state, org, &row, &rules, signed_in).await?;
            let to = Some(attempt.return_to).filter(|to| to != HOME);
            Ok(Ended::Tested { report: Box::new(report), name: row.name, to })
        }
        Purpose::Login if !row.is_active => Err(SsoFailure::Unknown),
        Purpose::Login => {
            let ended =
                log_in(state, org, &row, &rules, signed_in?, attempt.return_to, visit).await?;
            if let Some(former) = attempt.former {
                replace(state, org, former).await;
            }
            Ok(ended)
        }
        Purpose::Link(user) => {
            let (subject, now) = (signed_in?.person.subject, state.clock().now_ms());
            match state.store().link_by_idp(org, row.id, subject, user, now).await? {
                Linked::Good => Ok(Ended::Linked { to: attempt.return_to }),
                Linked::Other => Err(SsoFailure::Linked),
                Linked::Disabled => Err(SsoFailure::Disabled),
            }
        }
    }
}

async fn log_in(
    state: &ApiState,
    org: OrgId,
    row: &IdpRow,
    rules: &StoredRules,
    signed_in: SignIn,
    to: String,
    visit: &Visit,
) -> Result<Ended, SsoFailure> {
    let admission = rules.rules.admit(&signed_in.claims).map_err(OidcError::from)?;
    let SignIn { person, claims, id_token, .. } = signed_in;
    let vouched = VouchedPerson {
        subject: person.subject,
        name: person.name,
        email: person.email,
        role: role(admission.role),
        is_mapped: rules.rules.maps_groups() && !admission.keeps_role(),
    };
    let now = state.clock().now_ms();
    let new = UserId::mint(&mut IdMint::after(Stamp::default(), now));
    let joined = state.store().join_by_idp(org, row.id.clone(), vouched, new, now).await?;
    let Joined::Good { user, is_new } = joined else { return Err(SsoFailure::Disabled) };
    // A provider may let somebody in who proved who they are a while ago.
    let auth_ms = claims.auth_ms().filter(|at| *at < now);
    let beginning = Beginning { auth_ms, ..Beginning::new(BeganBy::Provider) };
    let begun = begin_login(state, org, user.clone(), beginning, visit).await?;
    let login = begun.cookie.login_id();
    let token = id_token.expose().as_bytes();
    let sealed = state.credentials().seal_of(org, login.as_str(), ONCE, token).await;
    let sealed = sealed.map_err(ApiError::from)?;
    state.store().note_idp_login(org, row.id.clone(), login, sealed).await?;
    let (idp, role, why) = (&row.id, admission.role, &admission.why);
    tracing::info!(%idp, %user, is_new, %role, %why, "a person has signed in at an identity provider");
    Ok(Ended::LoggedIn { cookie: begun.cookie, to })
}

/// Keeps what a test saw, and returns it. Nobody is logged in, and nobody joins.
async fn tested(
    state: &ApiState,
    org: OrgId,
    row: &IdpRow,
    rules: &StoredRules,
    signed_in: Result<SignIn, OidcError>,
) -> Result<Report, SsoFailure> {
    let now = state.clock().now_ms();
    let (report, algorithm) = match &signed_in {
        Ok(signed_in) => {
            let subject = signed_in.person.subject.clone();
            let known = state.store().known_person(org, row.id.clone(), subject).await?;
            let outcome = match (rules.rules.admit(&signed_in.claims), known) {
                (Err(no), _) => format!("the person could not sign in: {no}"),
                (Ok(_), Some(known)) if known.is_disabled => {
                    format!("the person could not sign in: {} is disabled", known.user)
                }
                (Ok(admission), known) => outcome(&rules.rules, &admission, known.as_ref()),
            };
            let SignIn { person, algorithm, clock_ms, claims, .. } = signed_in;
            let report = Report {
                at: now,
                is_good: true,
                message: outcome,
                subject: Some(person.subject.clone()),
                name: person.name.clone(),
                email: person.email.clone(),
                algorithm: Some(algorithm.to_string()),
                clock_ms: Some(*clock_ms),
                claims: claims.shown(),
            };
            (report, Some(algorithm.as_str()))
        }
        Err(error) => (Report { at: now, message: error.to_string(), ..Report::default() }, None),
    };
    let text = json!(report).to_string();
    state.store().keep_idp_report(org, row.id.clone(), row.version, text, algorithm, now).await?;
    Ok(report)
}

/// Returns the provider's address that ends its session too, if the login began at a provider that has one.
pub(crate) async fn logout_url(
    state: &ApiState,
    org: OrgId,
    login: LoginId,
) -> Result<Option<Url>, ApiError> {
    let Some((idp, sealed)) = state.store().idp_of_login(org, login.clone()).await? else {
        return Ok(None);
    };
    let row = state.store().idp(org, idp).await?;
    let (connection, _) = connection(state, org, &row).await?;
    let token = state.credentials().open_of(org, login.as_str(), ONCE, &sealed).await?;
    let token = String::from_utf8(token).map_err(ApiError::internal)?;
    let back = own_url(state, "/login")?;
    Ok(state.providers().logout(&connection, Some(&Secret::new(&token)), &back).await)
}

fn role(mapped: MappedRole) -> OrgRole {
    match mapped {
        MappedRole::Viewer => OrgRole::Viewer,
        MappedRole::Member => OrgRole::Member,
        MappedRole::Admin => OrgRole::Admin,
    }
}
