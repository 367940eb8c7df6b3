//! The calls whose bodies are as large as a session or a repository.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use domain::{ProjectId, SessionId};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Body, Method, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Client, ClientError, RepositoryView};

/// A repository of this machine, as the service knows it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamedRepository {
    /// Its id.
    pub id: String,
    /// The project of its sessions.
    #[serde(rename = "projectID")]
    pub project: ProjectId,
    /// The commits that need not be sent.
    pub known: Vec<String>,
    /// The most bytes of an upload.
    pub max_bytes: u64,
}

/// How long a service may take for an import, from its first byte.
const LONG: Duration = Duration::from_secs(3_600);

impl Client {
    /// Opens the stream of a session's export.
    ///
    /// # Errors
    /// As for every call.
    pub async fn open_export(&self, id: &SessionId) -> Result<Response, ClientError> {
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
    pub async fn open_out(
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
    pub async fn repository(&self, id: &SessionId) -> Result<RepositoryView, ClientError> {
        let request = self.request(Method::GET, &format!("/platform/session/{id}/repository"));
        self.typed(request, "a repository of the session", self.pace().answer).await
    }

    /// Names a repository of this machine, and learns which of its commits the service has.
    ///
    /// # Errors
    /// As for every call.
    pub async fn name_repository(
        &self,
        name: &str,
        root: &str,
        commits: &[String],
    ) -> Result<NamedRepository, ClientError> {
        let body = json!({ "name": name, "root": root, "commits": commits });
        self.persist_opening(async || {
            let request = self.request(Method::POST, "/platform/repository").json(&body);
            self.typed(request, "the repository", self.pace().answer).await
        })
        .await
    }

    /// Sends a pack of git objects, and returns the upload's id. Does not retry: a repetition would send it all again.
    ///
    /// # Errors
    /// As for every call, and [`ClientError::Unreadable`] if the file cannot be read.
    pub async fn upload(&self, path: &Path) -> Result<String, ClientError> {
        #[derive(Deserialize)]
        struct Upload {
            id: String,
        }
        let what = "the upload";
        let file = tokio::fs::File::open(path).await;
        let file = file.map_err(|error| ClientError::Unreadable {
            what: path.display().to_string(),
            why: error.to_string(),
        })?;
        let request = self.request(Method::POST, "/platform/upload");
        let request = request.header(CONTENT_TYPE, "application/x-git-packed-objects").body(file);
        let upload: Upload = self.typed(request, what, LONG).await?;
        Ok(upload.id)
    }

    /// Returns the next bytes of a stream; `None` at its end.
    ///
    /// # Errors
    /// When it breaks, or is silent for long.
    pub async fn next_piece(&self, answer: &mut Response) -> Result<Option<Bytes>, ClientError> {
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
    pub async fn import(&self, directory: Option<&str>, body: Body) -> Result<Value, ClientError> {
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
