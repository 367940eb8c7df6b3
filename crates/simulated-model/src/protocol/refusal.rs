//! Errors in the shape of each protocol.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use axum::http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::protocol::Protocol;

/// An error answer.
pub(crate) struct Refusal<'a> {
    pub(crate) status: StatusCode,
    pub(crate) message: &'a str,
}

/// A request that does not fit into the model, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong {
    /// The tokens of the prompt.
    pub(crate) tokens: u64,
    /// The tokens of the longest answer that the request allows, if the prompt alone would fit.
    pub(crate) answer: Option<u64>,
    /// The most tokens that fit.
    pub(crate) most: u64,
}

impl Refusal<'_> {
    /// Returns the response in `protocol`.
    pub(crate) fn response(&self, protocol: Protocol) -> Response<Body> {
        let message = format!("simulated model: {}", self.message);
        respond(protocol, self.status, &body(protocol, self.status, &message, None))
    }
}

impl TooLong {
    /// Returns the response in `protocol`, with its owner's wording.
    pub(crate) fn response(&self, protocol: Protocol) -> Response<Body> {
        let Self { tokens, most, .. } = self;
        let code = match protocol {
            Protocol::Chat | Protocol::Responses => Some("context_length_exceeded"),
            Protocol::Anthropic | Protocol::Gemini | Protocol::Bedrock => None,
        };
        let message = match (protocol, self.answer) {
            (Protocol::Chat, None) => format!(
                "This model's maximum context length is {most} tokens. However, your messages resulted in {tokens} \
                 tokens. Please reduce the length of the messages."
            ),
            (Protocol::Chat, Some(answer)) => format!(
                "This model's maximum context length is {most} tokens. However, you requested {} tokens ({tokens} in \
                 the messages, {answer} in the completion). Please reduce the length of the messages or completion.",
                tokens + answer
            ),
            (Protocol::Responses, _) => {
                "Your input exceeds the context window of this model. Please adjust your input and try again."
                    .to_owned()
            }
            (Protocol::Anthropic, None) => {
                format!("prompt is too long: {tokens} tokens > {most} maximum")
            }
            (Protocol::Anthropic, Some(answer)) => both(*tokens, answer, *most),
            (Protocol::Gemini, _) => format!(
                "The input token count ({tokens}) exceeds the maximum number of tokens allowed ({most})."
            ),
            (Protocol::Bedrock, None) => "Input is too long for requested model.".to_owned(),
            (Protocol::Bedrock, Some(answer)) => format!(
                "The model returned the following errors: {}",
                both(*tokens, answer, *most)
            ),
        };
        let status = StatusCode::BAD_REQUEST;
        respond(protocol, status, &body(protocol, status, &message, code))
    }
}

/// Returns Claude's wording, the same on each of its hosts.
fn both(tokens: u64, answer: u64, most: u64) -> String {
    format!(
        "input length and `max_tokens` exceed context limit: {tokens} + {answer} > {most}, decrease input length or \
         `max_tokens` and try again"
    )
}

fn respond(protocol: Protocol, status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if protocol == Protocol::Bedrock {
        let name = HeaderName::from_static("x-amzn-errortype");
        headers.insert(name, HeaderValue::from_static(aws_name(status)));
    }
    response
}

fn body(protocol: Protocol, status: StatusCode, message: &str, code: Option<&str>) -> Value {
    match protocol {
        Protocol::Chat | Protocol::Responses => json!({
            "error": { "message": message, "type": openai_type(status), "param": null, "code": code }
        }),
        Protocol::Anthropic => json!({
            "type": "error",
            "error": { "type": anthropic_type(status), "message": message }
        }),
        Protocol::Gemini => json!({
            "error": { "code": status.as_u16(), "message": message, "status": google_status(status) }
        }),
        Protocol::Bedrock => json!({ "message": message }),
    }
}

fn openai_type(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        _ if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    }
}

fn anthropic_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

fn google_status(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        500.. => "INTERNAL",
        _ => "INVALID_ARGUMENT",
    }
}

fn aws_name(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 403 => "AccessDeniedException",
        404 => "ResourceNotFoundException",
        429 => "ThrottlingException",
        503 => "ServiceUnavailableException",
        500.. => "InternalServerException",
        _ => "ValidationException",
    }
}
