//! Refusals and broken streams, as the third-party server writes them in each protocol.

use llm_client::LlmError;

use crate::world::{WAYS, Way, answer, asks, server};

#[tokio::test]
async fn each_refusal_is_told_by_its_reason() {
    let served = server().await;
    for way in WAYS {
        let fails = async |text: &str| -> LlmError {
            answer(&way.to(&served), &asks(text)).await.expect_err(text)
        };
        let often = fails("too often").await.event();
        assert_eq!((often.reason, often.status), ("rate-limit", Some(429)), "{way:?}");
        assert_eq!(often.retry_after_ms, Some(7_000), "{way:?}");
        let long = fails("too long").await.event();
        assert_eq!((long.reason, long.retryable), ("overflow", false), "{way:?}: {long:?}");
        let nonsense = fails("nonsense").await.event();
        assert_eq!((nonsense.reason, nonsense.retryable), ("invalid-request", false), "{way:?}");
        assert_eq!(nonsense.provider_message, "messages: what is this?", "{way:?}");
        let overloaded = fails("overloaded").await.event();
        assert_eq!(overloaded.reason, "provider-internal", "{way:?}: {overloaded:?}");
        assert!(overloaded.retryable, "{way:?}");
        let wrong = answer(&way.with(&served, "another-key"), &asks("say hello")).await;
        let wrong = wrong.expect_err("the key is not the server's").event();
        assert_eq!((wrong.reason, wrong.status), ("authentication", Some(401)), "{way:?}");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_no_end() {
    let served = server().await;
    for way in WAYS {
        let Way { provider, .. } = way;
        let error = answer(&way.to(&served), &asks("break off")).await.expect_err(provider);
        assert!(error.is_retryable(), "{way:?}: {error:?}");
        let reason = error.event().reason;
        assert!(["invalid-output", "transport"].contains(&reason), "{way:?}: {error:?}");
    }
}
