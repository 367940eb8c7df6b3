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

// Finding next report 26: the wait in the words was ignored, and five quick retries ended the prompt.
#[test]
fn a_wait_in_the_words_counts_without_a_header() {
    let body = r#"{"error":{"message":"Rate limit reached. Please try again in 45s.","code":"rate_limit_exceeded"}}"#;
    let limited = |wait| ErrorReason::RateLimit { retry_after_ms: Some(wait) };
    assert_eq!(reason(429, body), limited(45_000));
    assert_eq!(classify(429, Some(7), body).reason, limited(7));
    let failed = reason(503, "Overloaded: try again in 2 minutes");
    assert_eq!(failed, ErrorReason::ProviderInternal { retry_after_ms: Some(120_000) });
    assert_eq!(reason(400, "Try again in 2 minutes"), ErrorReason::InvalidRequest);
    let in_stream = json!({"code": "rate_limit_exceeded", "message": "Try again in 17 seconds."});
    assert_eq!(classify_in_stream(&in_stream).reason, limited(17_000));
}

// Finding next report 27: a limit of hours was tried again five times, and nobody was told when it ends.
#[test]
fn a_plan_that_is_used_up_says_when_it_resets() {
    let limit = |members: &str| {
        let body = format!(
            r#"{{"error":{{"type":"usage_limit_reached","message":"The usage limit has been reached"{members}}}}}"#
        );
        classify(429, None, &body)
    };
    let error = limit(r#","resets_in_seconds":13872"#);
    assert_eq!(error.reason, ErrorReason::Quota);
    assert_eq!(error.message, "The usage limit has been reached; it resets in 3 h 52 min");
    let error = limit(r#","resets_at":784111777"#);
    assert_eq!(
        error.message,
        "The usage limit has been reached; it resets at Sun, 06 Nov 1994 08:49:37 GMT"
    );
    assert_eq!(limit("").message, "The usage limit has been reached");
    let hit = r#"{"error":"You've hit your usage limit. Try again in 3 days."}"#;
    assert_eq!(reason(429, hit), ErrorReason::Quota);
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

// Finding llm 2: providers have their own words for an overflow.
#[test]
fn overflows_are_known_in_every_providers_words() {
    let raw = r#"{"error":{"message":"This endpoint's maximum context length is 8192 tokens","code":400}}"#;
    let openrouter = json!({"error": {
        "message": "Provider returned error", "code": 400, "metadata": {"raw": raw, "provider_name": "x"}
    }});
    let nested = json!({"error": {
        "message": "Provider returned error", "code": 400,
        "metadata": {"raw": {"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}}
    }});
    let copilot = json!({"error": {
        "message": "prompt token count of 140000 exceeds the limit of 128000",
        "code": "model_max_prompt_tokens_exceeded"
    }});
    let nova = "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again.";
    let kimi =
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)";
    let too_large = "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 200000, Requested 480002. The input or output tokens must be reduced in order to run successfully.";
    let cases = [
        (400, openrouter.to_string()),
        (400, nested.to_string()),
        (400, copilot.to_string()),
        (400, json!({"message": nova}).to_string()),
        (400, json!({"error": {"message": kimi, "type": "invalid_request_error"}}).to_string()),
        (400, json!({"error": {"message": "tokens in request more than max tokens allowed", "code": "1210"}}).to_string()),
        (400, json!({"error": {"message": "Prompt exceeds max length", "code": "1261"}}).to_string()),
        (400, String::new()),
        (429, json!({"error": {"message": too_large, "type": "tokens", "code": "rate_limit_exceeded"}}).to_string()),
        (413, json!({"error": {"message": "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 7,204", "code": "rate_limit_exceeded"}}).to_string()),
    ];
    for (status, body) in cases {
        assert_eq!(reason(status, &body), ErrorReason::ContextOverflow, "{status} {body}");
    }
    for message in [nova, kimi] {
        let error = json!({"type": "validationException", "message": message});
        assert_eq!(classify_in_stream(&error).reason, ErrorReason::ContextOverflow, "{message}");
    }
    let busy = "Rate limit reached for gpt-4o: Limit 200000, Used 190000, Requested 20000. Please try again in 3s.";
    let body = json!({"error": {"message": busy, "code": "rate_limit_exceeded"}}).to_string();
    assert_eq!(reason(429, &body), ErrorReason::RateLimit { retry_after_ms: Some(3000) });
}

// Finding llm 2: a gateway's error carries the words of the provider behind it.
#[test]
fn a_gateways_error_is_the_upstreams() {
    let of = |status: u16, raw: Value| {
        let error =
            json!({"message": "Provider returned error", "code": status, "metadata": {"raw": raw}});
        classify(status, None, &json!({"error": error}).to_string())
    };
    let error = of(429, json!("model is temporarily rate-limited upstream"));
    assert_eq!(error.message, "model is temporarily rate-limited upstream");
    assert_eq!(error.reason, ErrorReason::RateLimit { retry_after_ms: None });
    assert_eq!(of(502, Value::Null).message, "Provider returned error");
    let refused = of(400, json!({"error": {"message": "flagged by moderation"}}));
    assert_eq!(refused.reason, ErrorReason::ContentPolicy);
}

// Finding llm 8: a wrong key of xAI, and OpenAI's request to slow down.
#[test]
fn a_wrong_key_and_slow_down_are_known() {
    let body = json!({"code": "Client specified an invalid argument", "error": "Incorrect API key provided: xa***1."});
    assert_eq!(reason(400, &body.to_string()), ErrorReason::Authentication);
    let slow = json!({"code": "slow_down", "message": "Please slow down"});
    assert!(classify_in_stream(&slow).reason.is_retryable());
}

// Finding heldout-3: a prompt that OpenAI refuses for safety was an invalid request. So were its brothers elsewhere.
#[test]
fn refusals_of_content_are_known_in_every_providers_words() {
    let bodies = [
        (
            400,
            json!({"error": {"message": "Invalid prompt: we've limited access to this content for safety reasons.", "type": "invalid_request_error", "code": "invalid_prompt"}}),
        ),
        (
            400,
            json!({"error": {"message": "Invalid prompt: your prompt was flagged as potentially violating our usage policy.", "code": "invalid_prompt"}}),
        ),
        (
            400,
            json!({"error": {"message": "Your request was rejected as a result of our safety system.", "code": "moderation_blocked"}}),
        ),
        (
            400,
            json!({"code": "DataInspectionFailed", "message": "Input data may contain inappropriate content."}),
        ),
        (
            400,
            json!({"error": {"code": "1301", "message": "系统检测到输入或生成内容可能包含不安全或敏感内容"}}),
        ),
        (400, json!({"error": {"code": "InputTextSensitiveContentDetected", "message": "no"}})),
        (
            400,
            json!({"error": {"message": "Content Exists Risk", "type": "invalid_request_error"}}),
        ),
        (
            400,
            json!({"error": {"message": "The request was rejected because it was considered high risk", "type": "content_filter"}}),
        ),
        (
            403,
            json!({"error": "Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO"}),
        ),
    ];
    for (status, body) in bodies {
        assert_eq!(reason(status, &body.to_string()), ErrorReason::ContentPolicy, "{body}");
    }
    let failed = json!({"code": "invalid_prompt", "message": "Invalid prompt: limited access to this content for safety reasons."});
    assert_eq!(classify_in_stream(&failed).reason, ErrorReason::ContentPolicy);
    let invalid = json!({"error": {"message": "Invalid prompt: messages must alternate", "code": "invalid_prompt"}});
    assert_eq!(reason(400, &invalid.to_string()), ErrorReason::InvalidRequest);
}

// Finding: report 30-a6 (anomalyco/opencode#37161).
#[test]
fn a_workspace_without_credit_has_no_refused_key() {
    let of = |kind: &str, message: &str| {
        let error = json!({"type": kind, "message": message});
        reason(401, &json!({"type": "error", "error": error}).to_string())
    };
    assert_eq!(
        of("CreditsError", "No payment method. Add one here: https://h"),
        ErrorReason::Quota
    );
    assert_eq!(of("MonthlyLimitError", "Your workspace has reached its limit"), ErrorReason::Quota);
    assert_eq!(of("error", "Insufficient balance. Manage your billing"), ErrorReason::Quota);
    assert_eq!(of("AuthError", "Invalid API key."), ErrorReason::Authentication);
}

// Finding: report 30-a7 (Anantys-oss/koan#2412).
#[test]
fn used_up_credits_of_xai_are_a_quota() {
    let used = "Your team deadb has either used all available credits or reached its monthly spending limit. To continue making API requests, please purchase more credits or raise your spending limit.";
    let out = "You have run out of credits or need a Grok subscription.";
    for (status, message) in [(403, used), (429, used), (403, out), (401, out)] {
        let body = json!({"code": "permission-denied", "error": message}).to_string();
        assert_eq!(reason(status, &body), ErrorReason::Quota, "{status} {message}");
    }
    let refused = json!({"code": "permission-denied", "error": "The key has no access."});
    assert_eq!(reason(403, &refused.to_string()), ErrorReason::Authentication);
}

// Finding: report 30-a11 (laravel/ai#925).
#[test]
fn a_tier_without_capacity_is_tried_again() {
    let error = json!({"message": "Flex tier capacity exceeded.", "type": "capacity_exceeded"});
    let busy = ErrorReason::ProviderInternal { retry_after_ms: None };
    assert_eq!(reason(498, &json!({"error": error.clone()}).to_string()), busy);
    assert_eq!(classify_in_stream(&error).reason, busy);
}
