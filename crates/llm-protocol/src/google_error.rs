//! Reads the `details` of Google's errors, which are more exact than their message and status.
//!
//! Source: <https://cloud.google.com/apis/design/errors#error_details> (`google.rpc.RetryInfo`, `QuotaFailure`,
//! `ErrorInfo`).

use serde_json::Value;

use crate::error::ErrorReason;
use crate::stated_wait::duration_ms;

/// Returns the reason that an error's details give. A per-minute limit and a used-up daily quota have the
/// same status and message, and a wrong key has the status of an invalid request.
pub(crate) fn google_reason(error: &Value) -> Option<ErrorReason> {
    let details = error.get("details")?.as_array()?;
    let text = |detail: &Value, key: &str| detail.get(key)?.as_str().map(str::to_owned);
    let said = |key: &str| details.iter().find_map(|detail| text(detail, key));
    if said("reason").is_some_and(|reason| reason.starts_with("API_KEY_")) {
        return Some(ErrorReason::Authentication);
    }
    let is_limit = error.get("code") == Some(&Value::from(429))
        || error.get("status") == Some(&Value::from("RESOURCE_EXHAUSTED"));
    if !is_limit {
        return None;
    }
    let violations = details.iter().filter_map(|detail| detail.get("violations")?.as_array());
    let quotas = violations.flatten().filter_map(|violation| text(violation, "quotaId"));
    let infos = || details.iter().filter_map(|detail| detail.get("metadata"));
    let told = |key: &str| infos().find_map(|info| text(info, key));
    let is_daily = quotas.chain(told("quota_limit")).any(|quota| quota.contains("PerDay"));
    if is_daily || told("quota_unit").is_some_and(|unit| unit.starts_with("1/d/")) {
        return Some(ErrorReason::Quota);
    }
    let wait = said("retryDelay").and_then(|delay| delay_ms(&delay));
    let wait = wait.or_else(|| duration_ms(&told("quotaResetDelay")?));
    wait.map(|wait| ErrorReason::RateLimit { retry_after_ms: Some(wait) })
}

/// Parses a `google.protobuf.Duration` in JSON (seconds with a fraction and an `s`, at most a year) into
/// milliseconds.
fn delay_ms(delay: &str) -> Option<u64> {
    const YEAR_S: f64 = 366.0 * 86_400.0;
    let seconds: f64 = delay.strip_suffix('s')?.parse().ok()?;
    if !(0.0..=YEAR_S).contains(&seconds) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to a year")]
    Some((seconds * 1000.0).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{classify, classify_in_stream};
    use serde_json::json;

    fn limited(quota: &str, delay: Option<&str>) -> Value {
        let mut details = vec![json!({
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{"quotaMetric": "m", "quotaId": quota}]
        })];
        if let Some(delay) = delay {
            let kind = "type.googleapis.com/google.rpc.RetryInfo";
            details.push(json!({"@type": kind, "retryDelay": delay}));
        }
        let message =
            "You exceeded your current quota, please check your plan and billing details.";
        json!({"error": {
            "code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details
        }})
    }

    #[test]
    fn a_limit_of_a_minute_passes_and_that_of_a_day_is_spent() {
        let reason = |body: &Value, header| classify(429, header, &body.to_string()).reason;
        let minute =
            limited("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", Some("34.07s"));
        let wait = |ms| ErrorReason::RateLimit { retry_after_ms: Some(ms) };
        assert_eq!(reason(&minute, None), wait(34_070));
        assert_eq!(reason(&minute, Some(5)), wait(5));
        assert_eq!(classify_in_stream(&minute["error"]).reason, wait(34_070));
        let day = limited("GenerateRequestsPerDayPerProjectPerModel-FreeTier", Some("34s"));
        assert_eq!(reason(&day, None), ErrorReason::Quota);
        // Only the message helps here.
        assert_eq!(reason(&limited("", Some("soon")), None), ErrorReason::Quota);
        assert_eq!(reason(&limited("", Some("-1s")), None), ErrorReason::Quota);
    }

    /// Returns an error whose only detail is information with this metadata.
    fn informed(message: &str, metadata: &Value) -> String {
        let kind = "type.googleapis.com/google.rpc.ErrorInfo";
        let info = json!({"@type": kind, "reason": "RATE_LIMIT_EXCEEDED", "metadata": metadata});
        let error = json!({
            "code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": [info]
        });
        json!({ "error": error }).to_string()
    }

    // Finding: report 30-a8 (earendil-works/pi#370).
    #[test]
    fn the_delay_of_a_quota_is_waited() {
        let reason = |message: &str, metadata: Value| {
            classify(429, None, &informed(message, &metadata)).reason
        };
        let wait = |ms| ErrorReason::RateLimit { retry_after_ms: Some(ms) };
        let words = "You have exhausted your capacity on this model. Your quota will reset after";
        let model = || json!({"model": "gemini-2.5-pro"});
        assert_eq!(reason(&format!("{words} 39s."), model()), wait(39_000));
        assert_eq!(reason(&format!("{words} 12h34m16s."), model()), wait(45_256_000));
        let delay = |delay: &str| reason("Slow down.", json!({"quotaResetDelay": delay}));
        assert_eq!(delay("373.8ms"), wait(374));
        assert_eq!(delay("12h34m16s"), wait(45_256_000));
        assert_eq!(delay("soon"), ErrorReason::RateLimit { retry_after_ms: None });
    }

    // Finding: report 30-a9 (google-gemini/gemini-cli#10925).
    #[test]
    fn a_quota_of_a_day_in_the_metadata_is_spent() {
        let message = "Quota exceeded for quota metric 'Requests' and limit 'Requests per day'";
        let reason = |metadata: Value| classify(429, None, &informed(message, &metadata)).reason;
        let day = json!({"quota_limit": "Gemini25ProRequestsPerDay"});
        assert_eq!(reason(day), ErrorReason::Quota);
        assert_eq!(reason(json!({"quota_unit": "1/d/{project}"})), ErrorReason::Quota);
        let minute = json!({"quota_limit": "RequestsPerMinute", "quota_unit": "1/min/{project}"});
        assert_eq!(reason(minute), ErrorReason::RateLimit { retry_after_ms: None });
    }

    #[test]
    fn a_wrong_key_is_no_invalid_request() {
        let body = json!([{"error": {
            "code": 400, "message": "API key not valid. Please pass a valid API key.",
            "status": "INVALID_ARGUMENT",
            "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]
        }}]);
        assert_eq!(classify(400, None, &body.to_string()).reason, ErrorReason::Authentication);
    }
}
