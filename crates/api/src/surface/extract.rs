//! Extractors for handlers: permissions, queries, bounded bodies. Each fails with an [`ApiError`].

use auth::{Access, Scope};
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use bytes::Bytes;
use domain::OrgId;
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::dialect::Dialect;
use crate::ApiState;
use crate::error::ApiError;
use crate::text::shown;

/// The largest body, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = 1024 * 1024;

fn permitted(parts: &Parts, scope: Scope) -> Result<OrgId, ApiError> {
    let access = parts.extensions.get::<Access>().ok_or_else(|| {
        ApiError::Unauthenticated("an API key is needed".to_owned()) // the route is outside of `authenticate`
    })?;
    if access.may(scope) { Ok(access.org) } else { Err(ApiError::Forbidden(scope.as_str())) }
}

macro_rules! permission {
    ($(#[$doc:meta])* $name:ident, $scope:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $name {
            /// The organisation of the key. Every call of the store takes it.
            pub(crate) org: OrgId,
        }

        impl<S: Sync> FromRequestParts<S> for $name {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
                permitted(parts, $scope).map(|org| Self { org })
            }
        }
    };
}

permission!(/// Permission to read everything of the organisation.
    CanRead, Scope::Read);
permission!(/// Permission to create sessions, prompt and interrupt.
    CanPrompt, Scope::Prompt);
permission!(/// Permission to administer: rebuild, check, explain, set up providers.
    CanAdminister, Scope::Administer);

/// A place among the large answers that a key may have in progress. The request waits for it, and holds it until the
/// handler returns.
pub(crate) struct LargeRead {
    _permit: tokio::sync::OwnedSemaphorePermit,
}

impl FromRequestParts<ApiState> for LargeRead {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let key = parts.extensions.get::<Access>().map(|access| access.key.clone());
        let _permit = state.large_reads().enter(&key.unwrap_or_default()).await?;
        Ok(Self { _permit })
    }
}

/// The parsed query.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(params)) => Ok(Self(params)),
            Err(rejection) => Err(ApiError::Invalid(rejection.body_text())),
        }
    }
}

/// A JSON body of at most [`MAX_BODY_BYTES`]. An empty body is an empty object. The content type is ignored, since
/// some clients send none. In a native body an unknown field is an error: a misspelt `directory` would otherwise run
/// the session elsewhere. Stock clients may send unknown fields.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let dialect = Dialect::of(request.uri().path());
        let bytes =
            Bytes::from_request(request, state).await.map_err(|rejection| unread(&rejection))?;
        let text = if bytes.trim_ascii().is_empty() { b"{}" } else { bytes.as_ref() };
        let mut unknown = None;
        let unreadable = |error: serde_json::Error| {
            ApiError::Invalid(format!("the body cannot be read: {error}"))
        };
        let mut reader = serde_json::Deserializer::from_slice(text);
        let read = serde_ignored::deserialize(&mut reader, |path| {
            unknown.get_or_insert_with(|| path.to_string());
        });
        let body = read.map_err(unreadable)?;
        reader.end().map_err(unreadable)?;
        match unknown.filter(|_| dialect == Dialect::Native) {
            Some(field) => Err(ApiError::Invalid(format!(
                "the body has the unknown field `{}`; correct its name, or leave it out",
                shown(&field)
            ))),
            None => Ok(Self(body)),
        }
    }
}

fn unread(rejection: &BytesRejection) -> ApiError {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        ApiError::TooLarge(format!("a body has at most {MAX_BODY_BYTES} bytes; send less"))
    } else {
        ApiError::Invalid("the body did not arrive whole".to_owned())
    }
}
