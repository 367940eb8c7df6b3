//! The two calls whose bodies are as large as a session.

use std::time::Duration;

use bytes::Bytes;
use domain::SessionId;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Body, Method, Response};
use serde_json::Value;

use super::{Client, ClientError};
use crate::run_filling::RepositoryView;

/// How long a service may take for an import, from its first byte.
const LONG: Duration = Duration::from_secs(3_600);

impl Client {
    /// Opens the stream of a session's export.
    ///
    /// # Errors
    /// As for every call.
    pub(crate) async fn open_export(&self, id: &SessionId) -> Result<Response, ClientError> {
        let limit = self.pace().answer;
        self.persist_opening(async || {
            let request = self.request(Method::GET, &format!("/platform/session/{id}/export"));
            let what = format!("session {id}");
            let sent = self.send(request, &what, limit);
            tokio::time::timeout(limit, sent)
                .await
                .unwrap_or_else(|_| Err(ClientError::Silent { url: self.url().to_owned(), limit }))
        })
        .await
    }

    /// Opens the stream of a session's `patch` or `bundle`, which a worker makes first.
    ///
    /// # Errors
    /// As for every call.
    pub(crate) async fn open_out(
        &self,
        id: &SessionId,
        kind: &'static str,
    ) -> Result<Response, ClientError> {
        let request = self.request(Method::GET, &format!("/platform/session/{id}/{kind}"));
        let what = format!("a repository of session {id}");
        let sent = self.send(request, &what, LONG);
        tokio::time::timeout(LONG, sent).await.unwrap_or_else(|_| {
            Err(ClientError::Silent { url: self.url().to_owned(), limit: LONG })
        })
    }

    /// Returns a session's repository, and how far its workspace is.
    ///
    /// # Errors
    /// As for every call.
    pub(crate) async fn repository(&self, id: &SessionId) -> Result<RepositoryView, ClientError> {
        let request = self.request(Method::GET, &format!("/platform/session/{id}/repository"));
        self.typed(request, "a repository of the session", self.pace().answer).await
    }

    /// Returns the next bytes of a stream; `None` at its end.
    ///
    /// # Errors
    /// When it breaks, or is silent for long.
    pub(crate) async fn next_piece(
        &self,
        answer: &mut Response,
    ) -> Result<Option<Bytes>, ClientError> {
        let limit = self.pace().silence;
        match tokio::time::timeout(limit, answer.chunk()).await {
            Ok(piece) => piece.map_err(|error| ClientError::transport(self.url(), limit, &error)),
            Err(_) => Err(ClientError::Silent { url: self.url().to_owned(), limit }),
        }
    }

    /// Imports a session. Does not retry: the body can be read once.
    ///
    /// # Errors
    /// As for every call.
    pub(crate) async fn import(
        &self,
        directory: Option<&str>,
        body: Body,
    ) -> Result<Value, ClientError> {
        let mut request = self.request(Method::POST, "/platform/session/import");
        if let Some(directory) = directory {
            request = request.query(&[("directory", directory)]);
        }
        let request = request.header(CONTENT_TYPE, "application/x-ndjson").body(body);
        let what = "the import";
        let (_, answer) = self.answer(request, what, LONG).await?;
        serde_json::from_slice(&answer).map_err(|error| ClientError::Unreadable {
            what: what.to_owned(),
            why: error.to_string(),
        })
    }
}
