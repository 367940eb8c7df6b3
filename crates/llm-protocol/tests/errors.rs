//! Errors that providers report in the middle of a stream, by their public references, and our reasons for
//! them.

mod common;

use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use llm_protocol::{DecodeError, ErrorReason, Protocol, classify};
use serde_json::json;

const LIMIT: ErrorReason = ErrorReason::RateLimit { retry_after_ms: None };
const INTERNAL: ErrorReason = ErrorReason::ProviderInternal { retry_after_ms: None };

fn reason(protocol: Protocol, frame: &str) -> ErrorReason {
    let Err(DecodeError::Provider(error)) = protocol.decoder().push(frame) else {
        panic!("{frame}")
    };
    error.reason
}

#[test]
fn frames_that_report_an_error_have_a_typed_reason() {
    use Protocol::{AnthropicMessages, BedrockConverse, Gemini, OpenAiChat, OpenAiResponses};
    let cases = [
        (
            OpenAiChat,
            r#"{"error":{"message":"The server had an error","type":"server_error","param":null,"code":null}}"#,
            INTERNAL,
        ),
        (
            OpenAiChat,
            r#"{"error":{"message":"Rate limit reached","type":"tokens","code":"rate_limit_exceeded"}}"#,
            LIMIT,
        ),
        (
            OpenAiChat,
            r#"{"error":{"code":502,"message":"Provider disconnected"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}"#,
            INTERNAL,
        ),
        (
            OpenAiChat,
            r#"{"error":{"message":"no credit","type":"insufficient_quota","code":"insufficient_quota"}}"#,
            ErrorReason::Quota,
        ),
        (
            OpenAiChat,
            r#"{"error":"an error was encountered while running the model: context size"}"#,
            ErrorReason::ContextOverflow,
        ),
        (
            OpenAiChat,
            r#"{"error":{"code":"content_filter","message":"filtered"}}"#,
            ErrorReason::ContentPolicy,
        ),
        (
            OpenAiResponses,
            r#"{"type":"error","code":"server_error","message":"m","param":null,"sequence_number":1}"#,
            INTERNAL,
        ),
        (
            OpenAiResponses,
            r#"{"type":"error","error":{"type":"invalid_request_error","code":"context_length_exceeded","message":"m"}}"#,
            ErrorReason::ContextOverflow,
        ),
        (
            OpenAiResponses,
            r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"m"}}}"#,
            LIMIT,
        ),
        (
            OpenAiResponses,
            r#"{"type":"response.failed","response":{"error":{"code":"invalid_prompt","message":"flagged by our usage policies"}}}"#,
            ErrorReason::ContentPolicy,
        ),
        (
            AnthropicMessages,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}"#,
            INTERNAL,
        ),
        (
            AnthropicMessages,
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"m"}}"#,
            LIMIT,
        ),
        (
            AnthropicMessages,
            r#"{"type":"error","error":{"type":"authentication_error","message":"m"}}"#,
            ErrorReason::Authentication,
        ),
        (
            AnthropicMessages,
            r#"{"type":"error","error":{"type":"permission_error","message":"m"}}"#,
            ErrorReason::Authentication,
        ),
        (
            AnthropicMessages,
            r#"{"type":"error","error":{"type":"billing_error","message":"m"}}"#,
            ErrorReason::Quota,
        ),
        (
            AnthropicMessages,
            r#"{"type":"error","error":{"type":"not_found_error","message":"m"}}"#,
            ErrorReason::InvalidRequest,
        ),
        (
            AnthropicMessages,
            r#"{"type":"error","error":{"type":"request_too_large","message":"m"}}"#,
            ErrorReason::ContextOverflow,
        ),
        (
            AnthropicMessages,
            r#"{"type":"error","error":{"type":"timeout_error","message":"m"}}"#,
            INTERNAL,
        ),
        (
            AnthropicMessages,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens"}}"#,
            ErrorReason::ContextOverflow,
        ),
        (
            Gemini,
            r#"{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}"#,
            INTERNAL,
        ),
        (
            Gemini,
            r#"{"error":{"code":429,"message":"Resource exhausted","status":"RESOURCE_EXHAUSTED"}}"#,
            LIMIT,
        ),
        (
            Gemini,
            r#"{"error":{"code":400,"message":"The input token count exceeds the maximum","status":"INVALID_ARGUMENT"}}"#,
            ErrorReason::ContextOverflow,
        ),
        (
            Gemini,
            r#"{"error":{"code":403,"message":"m","status":"PERMISSION_DENIED"}}"#,
            ErrorReason::Authentication,
        ),
        (BedrockConverse, r#"{"throttlingException":{"message":"Too many requests"}}"#, LIMIT),
        (
            BedrockConverse,
            r#"{"validationException":{"message":"Input is too long for requested model."}}"#,
            ErrorReason::ContextOverflow,
        ),
        (
            BedrockConverse,
            r#"{"validationException":{"message":"malformed"}}"#,
            ErrorReason::InvalidRequest,
        ),
        (
            BedrockConverse,
            r#"{"modelStreamErrorException":{"originalStatusCode":500,"message":"m"}}"#,
            INTERNAL,
        ),
        (BedrockConverse, r#"{"serviceUnavailableException":{}}"#, INTERNAL),
        (BedrockConverse, r#"{"internalServerException":{"message":"m"}}"#, INTERNAL),
        (BedrockConverse, r#"{"error":{"code":"InternalFailure","message":"m"}}"#, INTERNAL),
    ];
    for (protocol, frame, expected) in cases {
        assert_eq!(reason(protocol, frame), expected, "{frame}");
    }
}

#[test]
fn refused_requests_have_the_same_reasons() {
    let cases = [
        (
            400,
            json!({"error": {"message": "Invalid 'messages[1].role'", "type": "invalid_request_error", "param": "messages", "code": null}}),
            ErrorReason::InvalidRequest,
        ),
        (
            404,
            json!({"error": {"message": "The model `x` does not exist", "type": "invalid_request_error", "code": "model_not_found"}}),
            ErrorReason::InvalidRequest,
        ),
        (
            401,
            json!({"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}),
            ErrorReason::Authentication,
        ),
        (
            529,
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
            INTERNAL,
        ),
        (
            402,
            json!({"error": {"code": 402, "message": "Insufficient credits"}}),
            ErrorReason::Quota,
        ),
        (
            422,
            json!({"detail": [{"loc": ["body"], "msg": "field required"}]}),
            ErrorReason::InvalidRequest,
        ),
        (
            400,
            json!([{"error": {"code": 400, "message": "* GenerateContentRequest.contents: contents is not specified", "status": "INVALID_ARGUMENT"}}]),
            ErrorReason::InvalidRequest,
        ),
        (503, json!({"message": "m"}), INTERNAL),
    ];
    for (status, body, expected) in cases {
        assert_eq!(classify(status, None, &body.to_string()).reason, expected, "{body}");
    }
}

/// Makes a message of AWS's event stream.
fn message(headers: &[(&'static str, &str)], payload: &str) -> Vec<u8> {
    let value = |text: &str| HeaderValue::String(text.to_owned().into());
    let headers = headers.iter().map(|(name, text)| Header::new(*name, value(text))).collect();
    let mut bytes = Vec::new();
    let message = Message::new_from_parts(headers, payload.as_bytes().to_vec());
    write_message_to(&message, &mut bytes).expect("it is small");
    bytes
}

#[test]
fn an_exception_in_bytes_ends_a_bedrock_stream_after_what_came_before() {
    let bedrock = Protocol::BedrockConverse;
    let text = message(
        &[(":event-type", "contentBlockDelta"), (":message-type", "event")],
        r#"{"contentBlockIndex":0,"delta":{"text":"a"}}"#,
    );
    let exception = message(
        &[(":exception-type", "throttlingException"), (":message-type", "exception")],
        r#"{"message":"slow down"}"#,
    );
    let whole = [text.as_slice(), &exception].concat();
    for cut in 0..whole.len() {
        let error = common::try_decode(bedrock, "m", [&whole[..cut], &whole[cut..]]).unwrap_err();
        assert_eq!(error.reason(), LIMIT);
    }
    let mut broken = whole;
    let prelude = text.len() + 9; // inside the second message's prelude checksum
    broken[prelude] ^= 1;
    let error = common::try_decode(bedrock, "m", [broken.as_slice()]).unwrap_err();
    assert!(matches!(error, DecodeError::Damaged { .. }), "{error}");
}
