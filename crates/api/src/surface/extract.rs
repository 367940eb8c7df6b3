//! Extractors for handlers: permissions, queries, bounded bodies. Each fails with an [`ApiError`].

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use access::{Bundle, Decision, Need, OrgRole, decide};
use auth::Believed;
use axum::body::BodyDataStream;
use axum::extract::rejection::BytesRejection;
use axum::extract::{ConnectInfo, FromRequest, FromRequestParts, Query, Request};
use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use serde::de::DeserializeOwned;
use store::{Principal as Proved, SeenRoles};

use super::ignored::Ignored;
use crate::ApiState;
use crate::act::Visit;
use crate::error::ApiError;
use crate::principal::Principal;
use crate::shares::Share;
use crate::surface::wall;

/// The largest body, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = 1024 * 1024;

/// The finding of the gate of the request's route: who acts, and that they may do what the route needs.
#[derive(Debug, Clone)]
pub(crate) struct Granted {
    pub(crate) need: Need,
    pub(crate) principal: Arc<Proved>,
}

/// Returns what the gate has granted. A route whose policy asks for less than its handler does is a fault of ours, and
/// nobody gets through: a test calls every route.
fn granted(parts: &Parts, least: Option<Bundle>) -> Result<&Granted, ApiError> {
    let granted = parts.extensions.get::<Granted>();
    let granted = granted.ok_or_else(|| ApiError::internal("the route has no gate"))?;
    match least {
        Some(least) if granted.need.bundle() < least => {
            Err(ApiError::internal(format!("the route's need {} is too little", granted.need)))
        }
        Some(_) | None => Ok(granted),
    }
}

macro_rules! permission {
    ($(#[$doc:meta])* $name:ident, $least:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub(crate) struct $name(Principal);

        impl Deref for $name {
            type Target = Principal;

            fn deref(&self) -> &Principal {
                &self.0
            }
        }

        impl<S: Sync> FromRequestParts<S> for $name {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
                Ok(Self((&*granted(parts, $least)?.principal).into()))
            }
        }
    };
}

permission!(/// Who reads, on a route whose policy allows that.
    CanRead, Some(Bundle::Read));
permission!(/// Who creates sessions, prompts or interrupts, on a route whose policy allows that.
    CanPrompt, Some(Bundle::Prompt));
permission!(/// Who administers, on a route whose policy allows that.
    CanAdminister, Some(Bundle::Administer));

/// Who sent the request, as a row has proved it, whatever the route's policy needs.
#[derive(Debug, Clone)]
pub(crate) struct Caller(pub(crate) Arc<Proved>);

impl Deref for Caller {
    type Target = Proved;

    fn deref(&self) -> &Proved {
        &self.0
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(Self(granted(parts, None)?.principal.clone()))
    }
}

impl Caller {
    /// Passes if the caller may also do what `need` says: where a request decides more than its route's policy.
    ///
    /// # Errors
    /// 403 with the need.
    pub(crate) fn wants(&self, need: Need) -> Result<(), ApiError> {
        match decide(self.standing(), need) {
            Decision::Yes => Ok(()),
            Decision::Forbidden(need, missing) => Err(ApiError::Forbidden(need, missing)),
        }
    }

    /// Returns the roles on which a request was allowed, for the transaction that makes the change. `target` is the role
    /// of the other person, if the decision depends on it.
    pub(crate) fn seen_roles(&self, target: Option<OrgRole>) -> SeenRoles {
        let standing = self.standing();
        SeenRoles { maker: standing.actor.clone(), maker_role: standing.role, target_role: target }
    }
}

/// The belief in the request's key or login.
pub(crate) struct Believes(pub(crate) Believed);

impl Believes {
    /// Passes unless it is a login whose person proved who they are some time ago: whoever has taken over an open page
    /// must not get more than it.
    ///
    /// # Errors
    /// 403 with `SIGN_IN_AGAIN`.
    pub(crate) fn wants_recent(&self) -> Result<(), ApiError> {
        if self.0.is_recent() { Ok(()) } else { Err(ApiError::sign_in_again()) }
    }
}

impl<S: Sync> FromRequestParts<S> for Believes {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let believed = parts.extensions.get::<Believed>().cloned();
        believed.map(Self).ok_or_else(|| ApiError::internal("the route has no gate"))
    }
}

/// That no page of another site has sent the request, on a route that everybody may use: nobody can make a browser log in
/// as somebody else.
pub(crate) struct OwnPage {
    /// The browser.
    pub(crate) visit: Visit,
}

impl FromRequestParts<ApiState> for OwnPage {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        if wall::is_browser(&parts.headers) {
            wall::own_page(&parts.method, &parts.headers, &state.settings().site)?;
        }
        Ok(Self { visit: visit(parts, state) })
    }
}

fn visit(parts: &Parts, state: &ApiState) -> Visit {
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip());
    Visit::of(&parts.headers, peer, &state.settings().site)
}

/// The browser that visits a route to which other sites may send it.
pub(crate) struct Visiting(pub(crate) Visit);

impl FromRequestParts<ApiState> for Visiting {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        Ok(Self(visit(parts, state)))
    }
}

/// A place among the large answers that a key may have in progress. The request waits for it, and holds it until the
/// handler returns.
pub(crate) struct LargeRead {
    _permit: tokio::sync::OwnedSemaphorePermit,
}

impl FromRequestParts<ApiState> for LargeRead {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let principal = granted(parts, None)?.principal.clone();
        let _permit = state.large_reads().enter(Principal::from(&*principal).person()).await?;
        Ok(Self { _permit })
    }
}

/// A place among the uploads that a key, an organisation and the gateway may have in progress. The request holds it until
/// the handler returns.
pub(crate) struct UploadPlace {
    _share: Share,
}

impl FromRequestParts<ApiState> for UploadPlace {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let principal = granted(parts, None)?.principal.clone();
        Ok(Self { _share: state.uploads().take(&(&*principal).into())? })
    }
}

/// The parsed query. The answer names parameters that no extractor of the request knows.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        Ignored::of(&parts.extensions).parameters::<T>(parts.uri.query());
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(params)) => Ok(Self(params)),
            Err(rejection) => Err(ApiError::Invalid(rejection.body_text())),
        }
    }
}

/// A JSON body of at most [`MAX_BODY_BYTES`]. An empty body is an empty object. The content type is ignored, since
/// some clients send none. The answer names members that nobody knows.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let ignored = Ignored::of(request.extensions());
        // Refused before it is read: a client that asked `Expect: 100-continue` sends nothing.
        let length =
            request.headers().get(CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: u64| length > MAX_BODY_BYTES as u64) {
            return Err(too_large());
        }
        let bytes =
            Bytes::from_request(request, state).await.map_err(|rejection| unread(&rejection))?;
        let text = if bytes.trim_ascii().is_empty() { b"{}" } else { bytes.as_ref() };
        let unreadable = |error: serde_json::Error| {
            ApiError::Invalid(format!("the body cannot be read: {error}"))
        };
        let mut reader = serde_json::Deserializer::from_slice(text);
        let read = serde_ignored::deserialize(&mut reader, |path| ignored.member(&path));
        let body = read.map_err(unreadable)?;
        reader.end().map_err(unreadable)?;
        Ok(Self(body))
    }
}

/// A body of any length, in the pieces in which it comes. Its handler bounds it.
pub(crate) struct Upload(pub(crate) BodyDataStream);

impl<S: Send + Sync> FromRequest<S> for Upload {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        Ok(Self(request.into_body().into_data_stream()))
    }
}

/// A pack of git objects, in the pieces in which it comes. Its handler bounds it.
pub(crate) struct Pack(pub(crate) BodyDataStream);

impl<S: Send + Sync> FromRequest<S> for Pack {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        Ok(Self(request.into_body().into_data_stream()))
    }
}

fn unread(rejection: &BytesRejection) -> ApiError {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        too_large()
    } else {
        ApiError::Invalid("the body did not arrive whole".to_owned())
    }
}

fn too_large() -> ApiError {
    ApiError::TooLarge(format!("a body has at most {MAX_BODY_BYTES} bytes; send less"))
}
