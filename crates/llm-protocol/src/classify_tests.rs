use super::*;
use serde_json::json;

fn reason(status: u16, body: &str) -> ErrorReason {
    classify(status, None, body).reason
}

#[test]
fn statuses_decide_when_the_body_is_mute() {
    assert_eq!(reason(401, ""), ErrorReason::Authentication);
    assert_eq!(reason(402, ""), ErrorReason::Quota);
    assert_eq!(reason(404, "<html>"), ErrorReason::InvalidRequest);
    assert_eq!(reason(308, ""), ErrorReason::InvalidRequest);
    let wait = ErrorReason::RateLimit { retry_after_ms: Some(7) };
    assert_eq!(classify(429, Some(7), "").reason, wait);
    let wait = ErrorReason::ProviderInternal { retry_after_ms: Some(9) };
    assert_eq!(classify(529, Some(9), "").reason, wait);
    assert_eq!(reason(199, ""), ErrorReason::Unknown);
}

#[test]
fn bodies_refine_what_the_status_says() {
    let cases = [
        (
            400,
            r#"{"error":{"message":"x","code":"context_length_exceeded"}}"#,
            ErrorReason::ContextOverflow,
        ),
        (
            400,
            r#"{"error":{"message":"This model's maximum context length is 8192 tokens."}}"#,
            ErrorReason::ContextOverflow,
        ),
        (
            500,
            r#"{"error":{"code":500,"message":"the request exceeds the available context size"}}"#,
            ErrorReason::ContextOverflow,
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens"}}"#,
            ErrorReason::ContextOverflow,
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 197202 + 21333 > 200000"}}"#,
            ErrorReason::ContextOverflow,
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}"#,
            ErrorReason::ContentPolicy,
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits."}}"#,
            ErrorReason::Quota,
        ),
        (
            429,
            r#"{"error":{"message":"x","type":"insufficient_quota","code":"insufficient_quota"}}"#,
            ErrorReason::Quota,
        ),
        (
            403,
            r#"{"error":{"message":"Your input was flagged","code":403}}"#,
            ErrorReason::ContentPolicy,
        ),
        (400, r#"{"error":{"message":"x","code":"content_filter"}}"#, ErrorReason::ContentPolicy),
        (
            413,
            r#"{"error":{"message":"Request too large on tokens per minute","code":"rate_limit_exceeded"}}"#,
            ErrorReason::RateLimit { retry_after_ms: None },
        ),
        (
            400,
            r#"[{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT"}}]"#,
            ErrorReason::InvalidRequest,
        ),
        (404, r#"{"error":"model 'x' not found"}"#, ErrorReason::InvalidRequest),
    ];
    for (status, body, expected) in cases {
        assert_eq!(reason(status, body), expected, "{status} {body}");
    }
}

#[test]
fn the_message_is_the_providers_and_bounded() {
    assert_eq!(classify(404, None, r#"{"error":"no model"}"#).message, "no model");
    assert_eq!(classify(404, None, r#"{"detail":"Not Found"}"#).message, "Not Found");
    assert_eq!(classify(502, None, " bad gateway\n").message, "bad gateway");
    assert_eq!(classify(502, None, r#"{"odd":1}"#).message, r#"{"odd":1}"#);
    let long = "é".repeat(4000);
    assert_eq!(classify(500, None, &long).message.len(), ProviderError::MAX_MESSAGE_BYTES);
}

#[test]
fn errors_in_a_stream_are_known_by_code_or_type() {
    let reason = |error: Value| classify_in_stream(&error).reason;
    assert_eq!(
        reason(json!({"code": 502, "message": "x"})),
        ErrorReason::ProviderInternal { retry_after_ms: None }
    );
    assert_eq!(reason(json!({"code": "429"})), ErrorReason::RateLimit { retry_after_ms: None });
    assert_eq!(
        reason(json!({"type": "overloaded_error"})),
        ErrorReason::ProviderInternal { retry_after_ms: None }
    );
    assert_eq!(
        reason(json!({"type": "server_error"})),
        ErrorReason::ProviderInternal { retry_after_ms: None }
    );
    assert_eq!(reason(json!({"code": "invalid_api_key"})), ErrorReason::Authentication);
    assert_eq!(reason(json!("something")), ErrorReason::Unknown);
}

#[test]
fn waits_are_read_in_every_form() {
    let now = http_date_unix_ms("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
    assert_eq!(now, 784_111_777_000);
    assert_eq!(retry_after_ms(Some("2"), None, now), Some(2000));
    assert_eq!(retry_after_ms(Some("0.25"), None, now), Some(250));
    assert_eq!(retry_after_ms(Some("2"), Some("150"), now), Some(150));
    assert_eq!(retry_after_ms(Some("2"), Some("soon"), now), Some(2000));
    assert_eq!(retry_after_ms(Some("Sun, 06 Nov 1994 08:49:40 GMT"), None, now), Some(3000));
    assert_eq!(retry_after_ms(Some("Sun, 06 Nov 1994 08:49:00 GMT"), None, now), Some(0));
    for nonsense in ["", "-1", "NaN", "inf", "1e300", "tomorrow"] {
        assert_eq!(retry_after_ms(Some(nonsense), None, now), None, "{nonsense}");
    }
}

#[test]
fn errors_of_aws_are_known_by_their_names() {
    let named = |status, name, body| classify_named(status, Some(7), Some(name), body).reason;
    let limited = ErrorReason::RateLimit { retry_after_ms: Some(7) };
    let internal = ErrorReason::ProviderInternal { retry_after_ms: Some(7) };
    let body = r#"{"message":"no"}"#;
    assert_eq!(named(400, "ThrottlingException:http://internal.amazon.com/", body), limited);
    assert_eq!(named(424, "ModelErrorException", body), internal);
    assert_eq!(named(429, "ModelNotReadyException", body), internal);
    assert_eq!(named(400, "ServiceQuotaExceededException", body), ErrorReason::Quota);
    assert_eq!(named(400, "ExpiredTokenException", body), ErrorReason::Authentication);
    assert_eq!(named(404, "ResourceNotFoundException", body), ErrorReason::InvalidRequest);
    let long = r#"{"message":"Input is too long for requested model."}"#;
    assert_eq!(named(400, "ValidationException", long), ErrorReason::ContextOverflow);
    assert_eq!(named(418, "SomethingNew", body), ErrorReason::InvalidRequest);
    let said = classify_named(403, None, None, r#"{"Message":"not authorized"}"#);
    assert_eq!(said.message, "not authorized");
}
