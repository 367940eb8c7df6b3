use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use simulated_model::{Outcome, RequestRecord};

use crate::{request, start, streamed};

#[tokio::test]
async fn the_log_has_the_exact_body_its_hash_and_no_secret() {
    let client = start().await;
    let body = r#"{ "messages" : [{"role":"user","content":"say 1 word"}],"stream":true }"#;
    let url = format!("{}/chat/completions", client.server.url());
    let sent = client.http.post(url).body(body).bearer_auth("sk-very-secret");
    let sent = sent.header("x-session-id", "ses_1").header("x-api-key", "sk-very-secret");
    sent.send().await.unwrap().text().await.unwrap();
    let (_, log) = client.sim("GET", "requests", &Value::Null).await;
    assert!(!log.to_string().contains("very-secret"));
    let record: RequestRecord = serde_json::from_value(log["requests"][0].clone()).unwrap();
    assert_eq!(record.sha256, hex::encode(Sha256::digest(body)));
    assert_eq!(record.body.as_deref(), Some(body));
    assert_eq!(record.headers["authorization"], "present");
    assert_eq!(record.headers["x-api-key"], "present");
    assert_eq!(record.headers["credential"], hex::encode(Sha256::digest("sk-very-secret")));
    assert_eq!(record.headers["x-session-id"], "ses_1");
    assert_eq!((record.seq, record.outcome, record.status), (1, Outcome::Answered, Some(200)));
    assert_eq!(record.usage, None, "it was not asked for, so it was not sent");
}

#[tokio::test]
async fn the_log_is_read_from_a_number_on_and_by_text() {
    let client = start().await;
    for prompt in ["say 1 word", "say 2 words", "hello"] {
        client.message(prompt).await;
    }
    let prompts = async |query: &str| {
        let (_, log) = client.sim("GET", &format!("requests{query}"), &Value::Null).await;
        let requests = log["requests"].as_array().unwrap().clone();
        requests
            .iter()
            .map(|record| record["prompt"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(prompts("?after=1").await, ["say 2 words", "hello"]);
    assert_eq!(prompts("?match=say").await, ["say 1 word", "say 2 words"]);
    assert_eq!(prompts("?after=1&match=say&limit=1").await, ["say 2 words"]);
    assert_eq!(client.sim("GET", "requests?afer=1", &Value::Null).await.0, 400);
    client.sim("DELETE", "requests", &Value::Null).await;
    assert!(prompts("").await.is_empty());
    client.message("hello").await;
    assert_eq!(client.server.handle.requests()[0].seq, 4);
}

#[tokio::test]
async fn counts_are_the_ledger_of_what_was_sent() {
    let client = start().await;
    let body = request("say 4 words");
    let usages =
        [client.ask(&body).await["usage"].clone(), client.ask(&body).await["usage"].clone()];
    client.post(&streamed("say 4 words")).send().await.unwrap().text().await.unwrap();
    let (_, counts) = client.sim("GET", "counts", &Value::Null).await;
    assert_eq!(counts["requests"], 3);
    assert_eq!((&counts["answered"], &counts["answers_with_usage"]), (&json!(3), &json!(3)));
    let records = client.server.handle.requests();
    let last = records[2].usage.unwrap().total_tokens;
    let first_two: u64 = usages.iter().map(|usage| usage["total_tokens"].as_u64().unwrap()).sum();
    assert_eq!(counts["usage"]["total_tokens"], first_two + last);
    assert_eq!(counts["by_sha256"][&records[0].sha256], 2);
    assert_eq!(counts["by_sha256"][&records[2].sha256], 1);
    assert_eq!(serde_json::to_value(client.server.handle.counts()).unwrap(), counts);
}
