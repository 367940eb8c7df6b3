//! Turns a provider's error answer into a typed reason. Pure: status, wait and body in, reason out.
//!
//! Providers agree on statuses more than on bodies. So a body only refines its status: first by its `code` or
//! `type`, last by known phrases. The phrases are those of OpenAI, Anthropic, Google, Groq, OpenRouter,
//! GitHub Copilot, Mistral, Moonshot, Z.ai, MiniMax, xAI, vLLM, llama.cpp, LM Studio and Ollama.

use serde_json::Value;

use crate::error::{ErrorReason, ProviderError, truncate};
use crate::google_error::google_reason;
use crate::overflow::{is_about_media, is_overflow};
use crate::refused_state::is_state_refusal;
use crate::stated_wait::{end_of_limit, wait_in_members, wait_in_words};
use crate::surrogates::value_of;

/// Classifies an answer whose status is not a success.
///
/// `retry_after_ms` comes from [`retry_after_ms`]. The message is the provider's, or the start of `body` if
/// that is not a JSON error.
#[must_use]
pub fn classify(status: u16, retry_after_ms: Option<u64>, body: &str) -> ProviderError {
    classify_named(status, retry_after_ms, None, body)
}

/// Classifies like [`classify`], with the error name that AWS puts into `x-amzn-errortype`. That name is more
/// exact than AWS's statuses.
#[must_use]
pub fn classify_named(
    status: u16,
    retry_after_ms: Option<u64>,
    name: Option<&str>,
    body: &str,
) -> ProviderError {
    let mut stated = Stated::from_body(body);
    let name = name.and_then(|name| name.split(':').next()).map(str::to_lowercase);
    stated.codes.extend(name.clone());
    let named = || Some(with_wait(by_name(name.as_slice())?, retry_after_ms));
    let reason = stated.refine(status, retry_after_ms).or_else(named);
    let reason = reason.unwrap_or_else(|| by_status(status, retry_after_ms));
    stated.with_reason(reason)
}

/// Classifies the `error` value of a stream's frame. It has no status, unless its own code is one (OpenRouter
/// sends the upstream's).
#[must_use]
pub fn classify_in_stream(error: &Value) -> ProviderError {
    let stated = Stated::from_error(error);
    // Other numbers are codes of the provider's own (Z.ai).
    let statuses = stated.codes.iter().filter_map(|code| code.parse::<u16>().ok());
    let status = statuses.into_iter().find(|code| (100..600).contains(code)).unwrap_or(0);
    let named = || by_name(&stated.codes);
    let reason =
        stated.refine(status, None).or_else(named).unwrap_or_else(|| by_status(status, None));
    stated.with_reason(reason)
}

/// Returns the error in a JSON value that is no part of an answer: its `error`, or itself if it has the code of one (Baidu,
/// MiniMax, gateways that send code and message alone, and vLLM's relays with `error_type` and `error_message`).
#[must_use]
pub fn stated_error(json: &Value) -> Option<&Value> {
    let has = |key: &str| json.get(key).is_some_and(|value| !value.is_null() && value != "");
    if has("error") {
        return json.get("error");
    }
    let base = json.pointer("/base_resp/status_code").and_then(Value::as_i64);
    let is_fine =
        json.get("code").and_then(Value::as_i64).is_some_and(|code| matches!(code, 0 | 200));
    let is_coded = has("code") && !is_fine && (has("message") || has("msg"));
    let is_coded = is_coded || has("error_code") || has("error_message");
    (is_coded || base.is_some_and(|code| code != 0)).then_some(json)
}

/// Returns the wait that a provider asks for, in milliseconds, from `retry-after-ms` or else `retry-after`
/// (RFC 9110 §10.2.3: seconds, here also with a fraction, or an HTTP date). `now_unix_ms` is the provider's
/// `date` or our clock; a past date gives 0. Nonsensical values give `None`.
#[must_use]
pub fn retry_after_ms(
    retry_after: Option<&str>,
    retry_after_ms: Option<&str>,
    now_unix_ms: u64,
) -> Option<u64> {
    retry_after_ms
        .and_then(|text| millis(text, 1.0))
        .or_else(|| retry_after.and_then(|text| millis(text, 1000.0)))
        .or_else(|| {
            retry_after.and_then(http_date_unix_ms).map(|at| at.saturating_sub(now_unix_ms))
        })
}

/// Parses an HTTP date (`Sun, 06 Nov 1994 08:49:37 GMT`) into milliseconds since 1970.
#[must_use]
pub fn http_date_unix_ms(text: &str) -> Option<u64> {
    let at = httpdate::parse_http_date(text.trim()).ok()?;
    let since = at.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

fn millis(text: &str, scale: f64) -> Option<u64> {
    const YEAR_MS: f64 = 366.0 * 86_400_000.0;
    let number: f64 = text.trim().parse().ok()?;
    if !(0.0..=YEAR_MS).contains(&(number * scale)) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to a year")]
    Some((number * scale).ceil() as u64)
}

fn by_status(status: u16, retry_after_ms: Option<u64>) -> ErrorReason {
    match status {
        401 | 403 => ErrorReason::Authentication,
        402 => ErrorReason::Quota,
        413 => ErrorReason::ContextOverflow,
        429 => ErrorReason::RateLimit { retry_after_ms },
        // 408 and 425 ask us to repeat the request; 409 is a lock that will be released; 498 says that Groq has no
        // capacity left: <https://console.groq.com/docs/errors>.
        408 | 409 | 425 | 498 | 500..=599 => ErrorReason::ProviderInternal { retry_after_ms },
        300..=499 => ErrorReason::InvalidRequest,
        _ => ErrorReason::Unknown,
    }
}

fn with_wait(reason: ErrorReason, retry_after_ms: Option<u64>) -> ErrorReason {
    match reason {
        ErrorReason::RateLimit { .. } => ErrorReason::RateLimit { retry_after_ms },
        ErrorReason::ProviderInternal { .. } => ErrorReason::ProviderInternal { retry_after_ms },
        ErrorReason::Authentication
        | ErrorReason::Quota
        | ErrorReason::ContextOverflow
        | ErrorReason::ContentPolicy
        | ErrorReason::StateRefused
        | ErrorReason::InvalidRequest
        | ErrorReason::Transport { .. }
        | ErrorReason::InvalidOutput { .. }
        | ErrorReason::Unknown => reason,
    }
}

/// Classifies by the error types of OpenAI, Anthropic and AWS, when there is no status.
fn by_name(codes: &[String]) -> Option<ErrorReason> {
    let has =
        |words: &[&str]| codes.iter().any(|code| words.iter().any(|word| code.contains(word)));
    // `slow_down` is OpenAI's, for a sudden rise in requests:
    // <https://platform.openai.com/docs/guides/error-codes>.
    if has(&["rate_limit", "too_many_requests", "throttling", "slow_down"]) {
        return Some(ErrorReason::RateLimit { retry_after_ms: None });
    }
    let refused = ["authentication", "permission", "invalid_api_key", "unauthorized"];
    if has(&refused) || has(AWS_REFUSED) {
        return Some(ErrorReason::Authentication);
    }
    let failed = ["server_error", "internal", "overloaded", "unavailable", "timeout", "api_error"];
    if has(&failed)
        || has(&["modelerror", "modelstreamerror", "modelnotready", "capacity_exceeded"])
    {
        return Some(ErrorReason::ProviderInternal { retry_after_ms: None });
    }
    let invalid = ["invalid_request", "invalid_prompt", "not_found", "invalid_argument"];
    (has(&invalid) || has(&["validation", "resourcenotfound"]))
        .then_some(ErrorReason::InvalidRequest)
}

/// The longest message to which the end of a limit is added, in bytes.
const LAST_WITH_END: usize = ProviderError::MAX_MESSAGE_BYTES - 64;

/// The members of an error that tell its kind.
const CODES: [&str; 5] = ["code", "type", "status", "error_code", "error_type"];

/// The contents of an error's body, in lower case except for the message.
#[derive(Default)]
struct Stated {
    codes: Vec<String>,
    message: String,
    google: Option<ErrorReason>,
    /// The wait in its members, in milliseconds.
    wait_ms: Option<u64>,
    /// When the limit ends, in words.
    ends: Option<String>,
}

impl Stated {
    fn from_body(body: &str) -> Self {
        match value_of(body) {
            // Gemini wraps its error in a list of one.
            Ok(Value::Array(items)) if !items.is_empty() => Self::from_object(&items[0], body),
            Ok(value) => Self::from_object(&value, body),
            Err(_) => Self { message: body.trim().to_owned(), ..Self::default() },
        }
    }

    fn from_object(value: &Value, body: &str) -> Self {
        let stated = Self::from_error(value.get("error").unwrap_or(value));
        if stated.message.is_empty() {
            Self { message: body.trim().to_owned(), ..stated }
        } else {
            stated
        }
    }

    fn from_error(error: &Value) -> Self {
        let text = |key: &str| error.get(key).and_then(Value::as_str).map(str::to_owned);
        let code = |key: &str| match error.get(key) {
            Some(Value::String(code)) => Some(code.to_lowercase()),
            Some(Value::Number(code)) => Some(code.to_string()),
            _ => None,
        };
        let message = error.as_str().map(str::to_owned);
        let message = message.or_else(|| text("message")).or_else(|| text("detail"));
        let message = message.or_else(|| text("Message")); // AWS, before it reaches the service
        // Baidu and gateways of its form, and MiniMax's `base_resp`.
        let message = message.or_else(|| text("error_msg")).or_else(|| text("msg"));
        let message = message.or_else(|| text("error_message"));
        let base = error.get("base_resp").unwrap_or(&Value::Null);
        let message =
            message.or_else(|| base.get("status_msg").and_then(Value::as_str).map(str::to_owned));
        let stated = Self {
            codes: CODES.into_iter().filter_map(code).collect(),
            message: message.unwrap_or_default(),
            google: google_reason(error),
            wait_ms: wait_in_members(error),
            ends: end_of_limit(error),
        };
        match upstream(error) {
            Some(raw) => stated.with_upstream(Self::from_body(&raw)),
            None => stated,
        }
    }

    /// Adds the upstream provider's error to a gateway's. The gateway only says `Provider returned error`;
    /// the upstream message gives the cause. Upstream codes come after the gateway's, so that the gateway's
    /// status counts.
    fn with_upstream(mut self, upstream: Self) -> Self {
        self.codes.extend(upstream.codes);
        if !upstream.message.is_empty() {
            self.message = upstream.message;
        }
        self.google = self.google.or(upstream.google);
        self.wait_ms = self.wait_ms.or(upstream.wait_ms);
        self.ends = self.ends.or(upstream.ends);
        self
    }

    /// Returns the reason from the body, if the body is more exact than the status.
    fn refine(&self, status: u16, retry_after_ms: Option<u64>) -> Option<ErrorReason> {
        let message = self.message.to_lowercase();
        let code = |words: &[&str]| {
            self.codes.iter().any(|code| words.iter().any(|word| code.contains(word)))
        };
        let said = |words: &[&str]| words.iter().any(|word| message.contains(word));
        if is_overflow(status, &self.codes, &message)
            || (matches!(status, 0 | 413 | 429) && exceeds_its_limit(&message))
        {
            return Some(ErrorReason::ContextOverflow);
        }
        if is_state_refusal(status, &self.codes, &message) {
            return Some(ErrorReason::StateRefused);
        }
        // A shorter conversation would still have the picture.
        if status == 413 && is_about_media(&message) {
            return Some(ErrorReason::InvalidRequest);
        }
        if matches!(status, 0 | 400) && said(KEY_PHRASES) {
            return Some(ErrorReason::Authentication);
        }
        let numbered = self.codes.iter().any(|code| POLICY_NUMBERS.contains(&code.as_str()));
        if code(POLICY_CODES)
            || numbered
            || (matches!(status, 0 | 400 | 403 | 422) && said(POLICY_PHRASES))
        {
            return Some(ErrorReason::ContentPolicy);
        }
        if let Some(reason) = self.google {
            return Some(if retry_after_ms.is_some() {
                with_wait(reason, retry_after_ms)
            } else {
                reason
            });
        }
        if code(QUOTA_CODES) || (matches!(status, 0 | 400 | 401 | 403 | 429) && said(QUOTA_PHRASES))
        {
            return Some(ErrorReason::Quota);
        }
        // Groq answers 413 for a request that is larger than the tokens allowed per minute.
        (status == 413 && code(&["rate_limit"]))
            .then_some(ErrorReason::RateLimit { retry_after_ms })
    }

    /// Makes the error. Without a wait in a header, the one in its members or its words counts.
    fn with_reason(self, reason: ErrorReason) -> ProviderError {
        let stated = || self.wait_ms.or_else(|| wait_in_words(&self.message.to_lowercase()));
        let wait = reason.retry_after_ms().or_else(stated);
        let mut message = truncate(&self.message, ProviderError::MAX_MESSAGE_BYTES).to_owned();
        if let Some(ends) = self.ends.filter(|_| message.len() < LAST_WITH_END) {
            message = format!("{message}; it {ends}");
        }
        ProviderError { reason: with_wait(reason, wait), message }
    }
}

/// Returns the upstream error that OpenRouter passes on:
/// <https://openrouter.ai/docs/api-reference/errors#provider-errors>. It is JSON as text, an object, or any
/// text.
fn upstream(error: &Value) -> Option<String> {
    match error.get("metadata")?.get("raw")? {
        Value::String(raw) => Some(raw.clone()),
        raw @ Value::Object(_) => Some(raw.to_string()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

/// Returns whether the request alone exceeds the limit per minute, as OpenAI and Groq report it (`Limit
/// 200000, Requested 480002`). Such a request never fits, however long one waits.
fn exceeds_its_limit(message: &str) -> bool {
    let number_after = |word: &str| {
        let (_, rest) = message.split_once(word)?;
        let rest = rest.trim_start_matches([':', ' ']);
        let digits: String = rest
            .chars()
            .take_while(|c| c.is_ascii_digit() || *c == ',')
            .filter(|c| *c != ',')
            .collect();
        digits.parse::<u64>().ok()
    };
    match (number_after("limit "), number_after("requested ")) {
        (Some(limit), Some(requested)) => requested > limit,
        (_, _) => false,
    }
}

/// xAI sends a wrong key with the status of an invalid request.
const KEY_PHRASES: &[&str] = &["incorrect api key", "invalid api key"];
const POLICY_CODES: &[&str] = &[
    "content_policy",
    "content_filter",
    "responsibleaipolicy",
    "moderation",
    "safety",
    "policy_violation",
    "cyber_policy",
    "content_violation",
    // Alibaba and Volcengine.
    "datainspection",
    "data_inspection",
    "sensitivecontent",
    "sensitive_content",
    "prohibited_content",
];
/// Codes without words, of Z.ai and MiniMax.
const POLICY_NUMBERS: &[&str] = &["1301", "1026", "1027"];
const POLICY_PHRASES: &[&str] = &[
    "content policy",
    "content management policy",
    "content filtering policy",
    "flagged",
    "moderation",
    "usage policies",
    "usage policy",
    "usage guidelines",
    // OpenAI, with the code `invalid_prompt`.
    "for safety reasons",
    "safety system",
    "safety filter",
    "safety check",
    "content safety",
    "content filter",
    "responsible ai",
    "violates our policies",
    "violating our policies",
    "inappropriate content",
    "sensitive content",
    "sensitive information",
    "new_sensitive",
    // DeepSeek and Moonshot.
    "content exists risk",
    "considered high risk",
    "敏感",
    "不安全",
    "内容安全",
    "违规",
    "违反",
];
const QUOTA_CODES: &[&str] = &[
    "insufficient_quota",
    "billing",
    "insufficient_balance",
    "insufficient_credits",
    "servicequotaexceeded",
    // ChatGPT's plans, whose limits last hours or days.
    "usage_limit_reached",
    "usage_limit_exceeded",
    "usage_not_included",
    // OpenCode Zen, with the status of a wrong key.
    "creditserror",
    "monthlylimiterror",
    "userlimiterror",
];
const AWS_REFUSED: &[&str] = &[
    "accessdenied",
    "unrecognizedclient",
    "expiredtoken",
    "invalidsignature",
    "signaturedoesnotmatch",
];
const QUOTA_PHRASES: &[&str] = &[
    "exceeded your current quota",
    "reached your specified api usage limits",
    "credit balance is too low",
    "insufficient balance",
    "insufficient credits",
    "usage limit has been reached",
    "usage limit reached",
    "reached your usage limit",
    "hit your usage limit",
    "exceeded your usage limit",
    // xAI, with the status of a refused key.
    "used all available credits",
    "spending limit",
    "run out of credits",
];

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;
