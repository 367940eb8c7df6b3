//! Extractors for handlers: permissions, queries, bounded bodies. Each fails with an [`ApiError`].

use std::ops::Deref;

use auth::{Access, Scope};
use axum::body::BodyDataStream;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use bytes::Bytes;
use domain::{Author, OrgId};
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::ignored::Ignored;
use crate::ApiState;
use crate::error::ApiError;
use crate::principal::Principal;

/// The largest body, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = 1024 * 1024;

fn permitted(parts: &Parts, scope: Scope) -> Result<&Access, ApiError> {
    let access = parts.extensions.get::<Access>().ok_or_else(|| {
        ApiError::Unauthenticated("an API key is needed".to_owned()) // the route is outside of `authenticate`
    })?;
    if access.may(scope) { Ok(access) } else { Err(ApiError::Forbidden(scope.as_str())) }
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
                permitted(parts, $scope).map(|access| Self { org: access.org })
            }
        }
    };
}

permission!(/// Permission to read everything of the organisation.
    CanRead, Scope::Read);
permission!(/// Permission to administer: rebuild, check, explain, set up providers.
    CanAdminister, Scope::Administer);

/// Permission to create sessions, prompt and interrupt, and who has it.
#[derive(Debug, Clone)]
pub(crate) struct CanPrompt(Principal);

impl Deref for CanPrompt {
    type Target = Principal;

    fn deref(&self) -> &Principal {
        &self.0
    }
}

impl<S: Sync> FromRequestParts<S> for CanPrompt {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let access = permitted(parts, Scope::Prompt)?;
        let author = Author { key: access.key.clone() };
        Ok(Self(Principal { org: access.org, author }))
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
        let key = parts.extensions.get::<Access>().map(|access| access.key.clone());
        let _permit = state.large_reads().enter(&key.unwrap_or_default()).await?;
        Ok(Self { _permit })
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
        ApiError::TooLarge(format!("a body has at most {MAX_BODY_BYTES} bytes; send less"))
    } else {
        ApiError::Invalid("the body did not arrive whole".to_owned())
    }
}
