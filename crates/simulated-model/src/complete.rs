//! Handles a request for an answer in any protocol: reads it, finds the script, waits as that says, answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
};
use axum::http::{Response, StatusCode};
use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::answer::Answer;
use crate::answer::tokens;
use crate::conversation::Conversation;
use crate::desk::Desk;
use crate::flow::{self, SimulatedCut};
use crate::limits::Limits;
use crate::log::{Arrival, Log, Outcome, Ticket};
use crate::memory::Memory;
use crate::plan;
use crate::protocol::{Protocol, Read, Refusal, TooLong, chat};
use crate::script::{Script, as_text};

/// The most headers in a record, and the most bytes of each.
const MAX_LOGGED_HEADERS: usize = 16;
const MAX_LOGGED_HEADER_BYTES: usize = 256;

/// The state that all requests share.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) log: Arc<Log>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) memory: Arc<Memory>,
}

type Received = Result<Bytes, BytesRejection>;

/// Answers a chat completions request.
pub(crate) async fn chat(
    State(model): State<Model>,
    headers: HeaderMap,
    body: Received,
) -> Response<Body> {
    model.complete(Protocol::Chat, "", &headers, body).await
}

/// Answers an OpenAI responses request.
pub(crate) async fn responses(
    State(model): State<Model>,
    headers: HeaderMap,
    body: Received,
) -> Response<Body> {
    model.complete(Protocol::Responses, "", &headers, body).await
}

/// Answers an Anthropic messages request.
pub(crate) async fn anthropic(
    State(model): State<Model>,
    headers: HeaderMap,
    body: Received,
) -> Response<Body> {
    model.complete(Protocol::Anthropic, "", &headers, body).await
}

/// Answers a Gemini request, whose path ends with `MODEL:streamGenerateContent`.
pub(crate) async fn gemini(
    State(model): State<Model>,
    Path(call): Path<String>,
    headers: HeaderMap,
    body: Received,
) -> Response<Body> {
    match call.split_once(":streamGenerateContent") {
        Some((name, "")) => model.complete(Protocol::Gemini, name, &headers, body).await,
        Some(_) | None => {
            let message = "only `streamGenerateContent` is known here";
            Refusal { status: StatusCode::NOT_FOUND, message }.response(Protocol::Gemini)
        }
    }
}

/// Answers a Bedrock Converse request.
pub(crate) async fn bedrock(
    State(model): State<Model>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Received,
) -> Response<Body> {
    model.complete(Protocol::Bedrock, &name, &headers, body).await
}

/// The handling of a request.
enum Todo {
    Refuse(String),
    RefuseAsTooLong(TooLong),
    Answer { answer: Box<Answer>, script: Option<Arc<Script>>, stream: bool, include_usage: bool },
}

impl Model {
    async fn complete(
        &self,
        protocol: Protocol,
        name: &str,
        headers: &HeaderMap,
        body: Received,
    ) -> Response<Body> {
        match body {
            Ok(body) => {
                let (todo, ticket) = self.read(protocol, name, headers, &body);
                self.act(protocol, todo, ticket).await
            }
            Err(rejection) => {
                let (status, message) = (rejection.status(), rejection.body_text());
                Refusal { status, message: &message }.response(protocol)
            }
        }
    }

    fn read(
        &self,
        protocol: Protocol,
        name: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> (Todo, Ticket) {
        let arrived_us = now_us();
        let sha256: [u8; 32] = Sha256::digest(body).into();
        let mut arrival = Arrival {
            arrived_us,
            sha256,
            body,
            prompt: String::new(),
            rounds: 0,
            headers: logged(headers),
            scripted: false,
        };
        let read = protocol.parse(body, name).and_then(|read| {
            self.memory.check(protocol, &read.request)?;
            Ok(read)
        });
        let todo = match read {
            Err(problem) => Todo::Refuse(problem),
            Ok(Read { request, pieces }) => {
                let conversation = Conversation::read(&request);
                arrival.prompt = conversation.prompt.clone().into_owned();
                arrival.rounds = conversation.rounds();
                // Refused before any script: a real provider checks the size before its model sees the request.
                if let Some(refusal) = self.limits.refusal(protocol, &request, tokens(body.len())) {
                    return (Todo::RefuseAsTooLong(refusal), self.log.begin(arrival));
                }
                let script = self.desk.take(&conversation);
                arrival.scripted = script.is_some();
                let plain = || plan::next(&request, &conversation);
                let draft = match &script {
                    Some(script) => script.draft(plain),
                    None => plain(),
                };
                let mut answer = Answer::new(draft, &sha256, body.len());
                answer.told_usage = script.as_ref().and_then(|script| script.usage.clone());
                let size = answer.usage.prompt_tokens;
                if script.as_ref().is_none_or(|script| !script.refuses(size)) {
                    pieces.meter(protocol, &request.model, &self.memory, &mut answer.usage);
                    if let Some((signature, ids)) = protocol.signs(&answer) {
                        let ids = ids.into_iter();
                        self.memory.signed(protocol, &request.model, ids, &signature);
                    }
                }
                let (stream, include_usage) = (request.stream, request.include_usage);
                Todo::Answer { answer: Box::new(answer), script, stream, include_usage }
            }
        };
        (todo, self.log.begin(arrival))
    }

    async fn act(&self, protocol: Protocol, todo: Todo, mut ticket: Ticket) -> Response<Body> {
        let (answer, script, stream, include_usage) = match todo {
            Todo::Refuse(problem) => {
                ticket.status(400);
                ticket.settle(Outcome::Refused);
                let status = StatusCode::BAD_REQUEST;
                return Refusal { status, message: &problem }.response(protocol);
            }
            Todo::RefuseAsTooLong(refusal) => {
                ticket.status(400);
                ticket.settle(Outcome::Refused);
                return refusal.response(protocol);
            }
            Todo::Answer { answer, script, stream, include_usage } => {
                (*answer, script, stream, include_usage)
            }
        };
        let script = script.as_deref();
        if let Some(script) = script {
            self.hold(script).await;
            if script.cut_before_headers {
                ticket.settle(Outcome::Cut);
                return cut_before_headers();
            }
            let tokens = answer.usage.prompt_tokens;
            if script.overflows(tokens) {
                ticket.status(400);
                ticket.settle(Outcome::Refused);
                let most = script.input_limit.filter(|most| *most < tokens);
                let most = most.unwrap_or(tokens.saturating_sub(1));
                return TooLong { tokens, answer: None, most }.response(protocol);
            }
            if let Some(status) = script.status {
                ticket.status(status);
                ticket.settle(Outcome::Refused);
                return scripted_error(protocol, status, script);
            }
        }
        ticket.status(200);
        if stream {
            let desk = Arc::clone(&self.desk);
            let body = flow::streamed(answer, protocol, include_usage, script, desk, ticket);
            let mut response = respond(StatusCode::OK, protocol.media_type(), body);
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            return response;
        }
        let whole = chat::whole(&answer); // the other protocols are refused without a stream
        match script {
            Some(Script { cut_after_chunks: Some(_), .. }) => {
                respond(StatusCode::OK, "application/json", flow::cut_in_half(&whole, ticket))
            }
            Some(Script { hang_after_chunks: Some(_), .. }) => std::future::pending().await,
            Some(_) | None => {
                if answer.told_usage.is_none() {
                    ticket.usage(answer.usage);
                }
                ticket.settle(Outcome::Answered);
                respond(StatusCode::OK, "application/json", Body::from(whole))
            }
        }
    }

    /// Waits as the script wants before the headers.
    async fn hold(&self, script: &Script) {
        if let (Some(gate), None) = (&script.gate, script.gate_after_chunks) {
            self.desk.pass(gate).await;
        }
        if script.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(script.delay_ms)).await;
        }
        if script.hang {
            std::future::pending::<()>().await;
        }
    }
}

/// Reads the wall clock, which a driver of load on the same machine shares.
#[expect(
    clippy::disallowed_methods,
    reason = "it goes into the log alone: no answer depends on it"
)]
fn now_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.ok().and_then(|since| u64::try_from(since.as_micros()).ok()).unwrap_or_default()
}

/// Returns an error of a route outside the protocols, in the shape of chat's.
pub(crate) fn error(status: StatusCode, message: &str) -> Response<Body> {
    Refusal { status, message }.response(Protocol::Chat)
}

fn scripted_error(protocol: Protocol, status: u16, script: &Script) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = match &script.body {
        Some(body) => {
            let kind = if body.is_string() { "text/plain" } else { "application/json" };
            respond(status, kind, Body::from(as_text(body)))
        }
        None => {
            let message = "a script answers this request with an error";
            Refusal { status, message }.response(protocol)
        }
    };
    let headers = response.headers_mut();
    if let Some(seconds) = script.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(milliseconds) = script.retry_after_ms {
        let name = HeaderName::from_static("retry-after-ms");
        headers.insert(name, HeaderValue::from(milliseconds));
    }
    response
}

/// Returns a marked response. The connection closes instead of sending it.
fn cut_before_headers() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    response.extensions_mut().insert(SimulatedCut);
    response
}

pub(crate) fn respond(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Returns a token for the request's credential: the SHA-256 of the key or token as lower-case hex, so that only
/// somebody who knows it can recognise it. For an AWS signature it is the access key's id and its scope.
fn credential(headers: &HeaderMap) -> Option<String> {
    let names = [AUTHORIZATION.as_str(), "x-api-key", "x-goog-api-key", "api-key"];
    let value = names.into_iter().find_map(|name| headers.get(name)?.to_str().ok())?;
    let signed = value.strip_prefix("AWS4-HMAC-SHA256 Credential=");
    if let Some((scope, _)) = signed.and_then(|rest| rest.split_once(',')) {
        return Some(scope.to_owned());
    }
    let secret = value.strip_prefix("Bearer ").unwrap_or(value);
    Some(hex::encode(Sha256::digest(secret)))
}

/// Returns the headers for a record. Secrets only appear as `present`.
fn logged(headers: &HeaderMap) -> BTreeMap<String, String> {
    let presence = if headers.contains_key(AUTHORIZATION) { "present" } else { "absent" };
    let mut logged = BTreeMap::from([("authorization".to_owned(), presence.to_owned())]);
    logged.extend(credential(headers).map(|told| ("credential".to_owned(), told)));
    for (name, value) in headers {
        let name = name.as_str();
        let known = ["user-agent", "content-type", "idempotency-key", "traceparent"];
        if !(name.starts_with("x-") || known.contains(&name)) {
            continue;
        }
        if logged.len() == MAX_LOGGED_HEADERS {
            break;
        }
        let secret = ["key", "token", "secret", "auth"].iter().any(|part| name.contains(part));
        let text = if secret && name != "idempotency-key" {
            "present".to_owned()
        } else {
            let bytes = value.as_bytes();
            let bytes = bytes.get(..MAX_LOGGED_HEADER_BYTES).unwrap_or(bytes);
            String::from_utf8_lossy(bytes).into_owned()
        };
        logged.insert(name.to_owned(), text);
    }
    logged
}
