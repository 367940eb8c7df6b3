//! One method for each route that the client uses.

use std::time::Duration;

use bytes::Bytes;
use domain::{MessageId, ProjectId, Seq, SessionId};
use reqwest::{Method, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::wire::{
    AbortView, ModelChoice, ProjectView, PromptRequest, RebuildView, RequestId, SessionView,
    SessionsQuery, ViolationView,
};
use super::{Client, ClientError, LogEvent};

/// The time limit of a rebuild or a check, which read a whole log or a whole organisation.
const LONG_ANSWER: Duration = Duration::from_secs(600);

/// The part of `/platform/me` that a command needs.
#[derive(Debug, Deserialize)]
struct MeView {
    /// A service that does not say it has the directories of its machine, as all had that began on loopback.
    #[serde(default = "has_paths")]
    local_paths: bool,
}

fn has_paths() -> bool {
    true
}

impl Client {
    /// Asks whether sessions may work in directories of the service's machine.
    pub(super) async fn ask_for_paths(&self) -> Result<bool, ClientError> {
        let asked = self.persist_opening(async || {
            let request = self.request(Method::GET, "/platform/me");
            self.typed::<MeView>(request, "who you are", self.pace().answer).await
        });
        match asked.await {
            Ok(me) => Ok(me.local_paths),
            // A key for single needs may work in sessions and not ask this: the directory is tried.
            Err(ClientError::Forbidden { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Finds or creates the project of a directory.
    ///
    /// # Errors
    /// [`ClientError`], as for every call.
    pub async fn init_project(&self, directory: Option<&str>) -> Result<ProjectView, ClientError> {
        self.persist_opening(async || {
            let request = self.request(Method::POST, "/project/init");
            let request = request.json(&json!({ "directory": directory }));
            self.typed(request, "the project", self.pace().answer).await
        })
        .await
    }

    /// Creates a session with an id that the caller minted, so that it is retried like [`Client::prompt`]. Without a
    /// title, its model chooses one; without an agent, it gets the service's default.
    ///
    /// # Errors
    /// As for every call.
    pub async fn create_session(
        &self,
        id: &SessionId,
        project: &ProjectId,
        directory: Option<&str>,
        agent: Option<&str>,
        model: Option<&ModelChoice>,
        title: Option<&str>,
    ) -> Result<SessionView, ClientError> {
        let begins = json!({ "directory": directory });
        self.create_session_with(id, project, begins, agent, model, title).await
    }

    /// Creates a session like [`Client::create_session`]. `begins` are the members that say with which files it begins.
    ///
    /// # Errors
    /// As for every call.
    pub async fn create_session_with(
        &self,
        id: &SessionId,
        project: &ProjectId,
        begins: Value,
        agent: Option<&str>,
        model: Option<&ModelChoice>,
        title: Option<&str>,
    ) -> Result<SessionView, ClientError> {
        let mut body = begins;
        body["id"] = json!(id);
        if let Some(agent) = agent {
            body["agent"] = json!(agent);
        }
        if let Some(title) = title {
            body["title"] = json!(title);
        }
        if let Some(model) = model {
            body["model"] = json!(model);
        }
        self.persist(async || {
            let request = self.request(Method::POST, &format!("/project/{project}/session"));
            self.typed(request.json(&body), "the project", self.pace().answer).await
        })
        .await
    }

    /// Deletes a session with its log.
    ///
    /// # Errors
    /// As for every call.
    pub async fn delete_session(&self, id: &SessionId) -> Result<(), ClientError> {
        let limit = self.pace().answer;
        self.of_session(id, Method::DELETE, "", None, limit).await.map(drop)
    }

    /// Returns the messages of a session, oldest first, as the service sends them.
    ///
    /// # Errors
    /// As for every call.
    pub async fn messages_json(&self, id: &SessionId) -> Result<Value, ClientError> {
        let (what, path) = (session_name(id), format!("/platform/session/{id}/message"));
        let mut pages: Vec<Vec<Value>> = Vec::new();
        let mut before: Option<String> = None;
        // Page by page, the newest first.
        loop {
            let request = self.request(Method::GET, &path);
            let request = match &before {
                Some(before) => request.query(&[("before", before)]),
                None => request,
            };
            let (headers, body) = self.answer(request, &what, self.pace().answer).await?;
            let page = serde_json::from_slice(&body).map_err(|error| unreadable(&what, &error))?;
            pages.push(page);
            before =
                headers.get("x-next-cursor").and_then(|next| next.to_str().ok()).map(str::to_owned);
            if before.is_none() {
                return Ok(pages.into_iter().rev().flatten().collect());
            }
        }
    }

    /// Returns a session.
    ///
    /// # Errors
    /// As for every call.
    pub async fn session(&self, id: &SessionId) -> Result<SessionView, ClientError> {
        parsed(&self.session_json(id).await?, &session_name(id))
    }

    /// Returns a session, as the service sends it.
    ///
    /// # Errors
    /// As for every call.
    pub async fn session_json(&self, id: &SessionId) -> Result<Value, ClientError> {
        self.persist_opening(async || {
            let request = self.request(Method::GET, &format!("/platform/session/{id}"));
            self.typed(request, &session_name(id), self.pace().answer).await
        })
        .await
    }

    /// Returns the newest sessions that a query selects, as the service sends them.
    ///
    /// # Errors
    /// As for every call.
    pub async fn sessions_json(&self, query: &SessionsQuery) -> Result<Value, ClientError> {
        let what = "the list of sessions";
        let mut query = query.clone();
        let (mut found, most) = (Vec::new(), query.limit);
        // A page may have fewer than its limit, and others follow.
        loop {
            let (headers, body) = self
                .persist_opening(async || {
                    let request = self.request(Method::GET, "/platform/session").query(&query);
                    self.answer(request, what, self.pace().answer).await
                })
                .await?;
            // No version of the service answers with anything but a list.
            let page: Vec<Value> = serde_json::from_slice(&body)
                .map_err(|_| ClientError::Foreign { url: self.url().to_owned() })?;
            found.extend(page);
            let count = u32::try_from(found.len()).unwrap_or(u32::MAX);
            query.limit = most.saturating_sub(count);
            query.cursor =
                headers.get("x-next-cursor").and_then(|next| next.to_str().ok()).map(str::to_owned);
            if query.limit == 0 || query.cursor.is_none() {
                return Ok(Value::Array(found));
            }
        }
    }

    /// Admits a prompt. Retries until the service accepts or refuses it; the prompt's id makes that safe.
    ///
    /// # Errors
    /// As for every call; a transient error only after [`Pace::patience`](super::Pace::patience).
    pub async fn prompt(
        &self,
        session: &SessionId,
        prompt: &PromptRequest,
    ) -> Result<MessageId, ClientError> {
        self.persist(async || {
            let path = format!("/platform/session/{session}/message");
            let request = self.request(Method::POST, &path).json(prompt);
            self.answer(request, &session_name(session), self.pace().answer).await
        })
        .await?;
        Ok(prompt.message.clone())
    }

    /// Asks a session to stop. The interrupt is durable when this returns. It is safe to repeat, and retried like
    /// [`Client::prompt`].
    ///
    /// # Errors
    /// As for every call.
    pub async fn abort(&self, session: &SessionId) -> Result<AbortView, ClientError> {
        self.persist(async || {
            let request = self.request(Method::POST, &format!("/platform/session/{session}/abort"));
            self.typed(request, &session_name(session), self.pace().answer).await
        })
        .await
    }

    /// Returns the answer to a `GET`, as the service sends it. `what` names the requested thing, for errors.
    ///
    /// # Errors
    /// As for every call.
    pub async fn get_json(&self, path: &str, what: &str) -> Result<Value, ClientError> {
        self.persist_opening(async || self.call_json(Method::GET, path, None, what).await).await
    }

    /// Returns the text that the service answers a `GET` with. `what` names the requested thing, for errors.
    ///
    /// # Errors
    /// As for every call.
    pub async fn get_text(&self, path: &str, what: &str) -> Result<String, ClientError> {
        let limit = self.pace().answer;
        let get = async || self.answer(self.request(Method::GET, path), what, limit).await;
        let (_, answer) = self.persist_opening(get).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Makes a call and returns the answer unchanged, or `null` for an empty body. Does not retry.
    ///
    /// # Errors
    /// As for every call.
    pub async fn call_json(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        what: &str,
    ) -> Result<Value, ClientError> {
        let mut request = self.request(method, path);
        if let Some(body) = body {
            request = request.json(body);
        }
        let (_, answer) = self.answer(request, what, self.pace().answer).await?;
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer).map_err(|error| unreadable(what, &error))
    }

    /// Makes a call about one session, on a path below its own. Returns the answer unchanged, or `null` for an empty
    /// body. Does not retry.
    ///
    /// # Errors
    /// As for every call.
    pub async fn of_session(
        &self,
        session: &SessionId,
        method: Method,
        below: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<Value, ClientError> {
        let mut request = self.request(method, &format!("/platform/session/{session}{below}"));
        if let Some(body) = body {
            request = request.json(body);
        }
        let what = session_name(session);
        let (_, answer) = self.answer(request, &what, limit).await?;
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer).map_err(|error| unreadable(&what, &error))
    }

    /// Makes a call about one session whose body has an id, so that it is retried like [`Client::prompt`].
    ///
    /// # Errors
    /// As for every call; a transient error only after [`Pace::patience`](super::Pace::patience).
    pub async fn persist_of_session(
        &self,
        session: &SessionId,
        below: &str,
        body: &Value,
    ) -> Result<Value, ClientError> {
        let limit = self.pace().answer;
        self.persist(async || {
            self.of_session(session, Method::POST, below, Some(body), limit).await
        })
        .await
    }

    /// Returns the components of a wire request, and whether its body can be rebuilt byte for byte.
    ///
    /// # Errors
    /// As for every call.
    pub async fn explain_json(&self, id: &RequestId) -> Result<Value, ClientError> {
        let request = self.request(Method::GET, &format!("/platform/explain/{id}"));
        self.typed(request, &id.to_string(), self.pace().answer).await
    }

    /// Returns the body of a wire request, rebuilt from rows.
    ///
    /// # Errors
    /// As for every call.
    pub async fn explain_body(&self, id: &RequestId) -> Result<Bytes, ClientError> {
        let request = self.request(Method::GET, &format!("/platform/explain/{id}"));
        let request = request.query(&[("body", true)]);
        Ok(self.answer(request, &id.to_string(), self.pace().answer).await?.1)
    }

    /// Rebuilds a session's projections from its events; with `check` it only compares.
    ///
    /// # Errors
    /// As for every call.
    pub async fn rebuild(
        &self,
        session: &SessionId,
        check: bool,
    ) -> Result<RebuildView, ClientError> {
        let request = self.request(Method::POST, &format!("/platform/session/{session}/rebuild"));
        self.typed(request.query(&[("check", check)]), &session_name(session), LONG_ANSWER).await
    }

    /// Checks the invariants that the organisation's rows show. `settled` adds those that hold only while nothing
    /// runs; `blobs` looks for missing blobs.
    ///
    /// # Errors
    /// As for every call.
    pub async fn check(
        &self,
        settled: bool,
        blobs: bool,
    ) -> Result<Vec<ViolationView>, ClientError> {
        let request = self
            .request(Method::GET, "/platform/check")
            .query(&[("settled", settled), ("blobs", blobs)]);
        self.typed(request, "the check", LONG_ANSWER).await
    }

    /// Returns the models that may be used, as the service sends them. With `provider`, includes it even if it is not
    /// set up.
    ///
    /// # Errors
    /// As for every call.
    pub async fn models_json(
        &self,
        provider: Option<&str>,
        all: bool,
    ) -> Result<Value, ClientError> {
        let mut request = self.request(Method::GET, "/platform/model");
        if let Some(provider) = provider {
            request = request.query(&[("provider", provider)]);
        }
        if all {
            request = request.query(&[("all", true)]);
        }
        self.typed(request, "the list of models", self.pace().answer).await
    }

    /// Returns the provider of the service's default model. A model without a provider belongs to it.
    ///
    /// # Errors
    /// As for every call.
    pub async fn default_provider(&self) -> Result<Option<String>, ClientError> {
        let config: Value = self
            .persist_opening(async || {
                let request = self.request(Method::GET, "/config");
                self.typed(request, "the configuration", self.pace().answer).await
            })
            .await?;
        let model = config.get("model").and_then(Value::as_str);
        Ok(model.and_then(|model| model.split_once('/')).map(|(provider, _)| provider.to_owned()))
    }

    /// Returns a page of a session's log after `after`; an empty one at its end.
    ///
    /// # Errors
    /// As for every call.
    pub async fn log_page(
        &self,
        session: &SessionId,
        after: Seq,
    ) -> Result<Vec<LogEvent>, ClientError> {
        let request = self
            .request(Method::GET, &format!("/platform/session/{session}/log"))
            .query(&[("after", after.0)]);
        let page: Vec<LogEvent> =
            self.typed(request, &session_name(session), self.pace().answer).await?;
        page.into_iter().map(LogEvent::interpreted).collect()
    }

    /// Opens the log like [`Client::open_log`], with the retries of a first call.
    pub(super) async fn open_first_log(
        &self,
        session: &SessionId,
        after: Seq,
    ) -> Result<Response, ClientError> {
        self.persist_opening(async || self.open_log(session, after).await).await
    }

    /// Opens the log's stream, for [`LogFollower`](super::LogFollower).
    pub(super) async fn open_log(
        &self,
        session: &SessionId,
        after: Seq,
    ) -> Result<Response, ClientError> {
        let request = self
            .request(Method::GET, &format!("/platform/session/{session}/log"))
            .query(&[("after", after.to_string()), ("follow", "true".to_owned())])
            .header("last-event-id", after.0)
            .header("accept", "text/event-stream");
        // The stream itself has no end, but its headers come at once.
        let limit = self.pace().answer;
        let what = session_name(session);
        let sent = self.send(request, &what, limit);
        tokio::time::timeout(limit, sent)
            .await
            .unwrap_or_else(|_| Err(ClientError::Silent { url: self.url().to_owned(), limit }))
    }

    pub(super) async fn typed<T: DeserializeOwned>(
        &self,
        request: reqwest::RequestBuilder,
        what: &str,
        limit: Duration,
    ) -> Result<T, ClientError> {
        let (_, body) = self.answer(request, what, limit).await?;
        serde_json::from_slice(&body).map_err(|error| unreadable(what, &error))
    }
}

/// Reads a view from an answer. `what` names it, for errors.
///
/// # Errors
/// [`ClientError::Unreadable`].
pub fn parsed<T: DeserializeOwned>(answer: &Value, what: &str) -> Result<T, ClientError> {
    T::deserialize(answer).map_err(|error| unreadable(what, &error))
}

fn unreadable(what: &str, error: &serde_json::Error) -> ClientError {
    ClientError::Unreadable { what: what.to_owned(), why: error.to_string() }
}

fn session_name(id: &SessionId) -> String {
    format!("session {id}")
}
