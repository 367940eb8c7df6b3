//! A service whose every text is longer than a terminal is wide.

use axum::Router;
use axum::body::Bytes;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;

pub(crate) const SESSION: &str = "ses_0123456789abcdefghijklmnop";
pub(crate) const MESSAGE: &str = "msg_0123456789abcdefghijklmnop";
pub(crate) const TURN: &str = "trn_0123456789abcdefghijklmnop";

const TITLE: &str = "Find out why the parser of settings loses the last line of a file without a line feed, mend it, and add a test";
const DIRECTORY: &str =
    "/srv/people/somebody-with-a-long-name/projects/a-service-with-a-name/crates/and-a-crate-in-it";
const FILE: &str =
    "crates/a-crate-with-a-name/src/settings/parser/a_module_of_it/that_has_a_file/with_a_name.rs";
const COMMAND: &str = "cargo nextest run --workspace --all-features -E 'package(settings) and test(parser)' --no-fail-fast -- --include-ignored";
const SENTENCE: &str = "a provider has answered with status 529 and said that it is overloaded at the moment, so please ask again in a minute";
const PERSON: &str = "Somebody With A Rather Long Name Of Several Words Who Works Here";
const MAIL: &str = "somebody.with.a.rather.long.address@department.of.engineering.example.com";
const ISSUER: &str = "https://login.identity.example.com/tenants/0123456789abcdef0123456789abcdef/realms/engineering";
const PROJECT: &str = "prj_0123456789abcdefghijklmnop";
const HASH: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// The texts of which no command shows a part without a mark that there is more.
pub(crate) const TEXTS: [&str; 8] =
    [TITLE, DIRECTORY, FILE, COMMAND, SENTENCE, PERSON, MAIL, ISSUER];

/// Starts the service and returns its URL.
pub(crate) async fn start() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    #[expect(clippy::disallowed_methods, reason = "a test's server ends with its runtime")]
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    url
}

async fn answer(method: Method, uri: Uri, body: Bytes) -> Response {
    let (method, path) = (method.as_str(), uri.path());
    let query = uri.query().unwrap_or_default();
    if let Some(below) = path.strip_prefix(&format!("/platform/session/{SESSION}")) {
        return of_session(method, below, query);
    }
    let answer = match (method, path) {
        ("GET", "/readyz" | "/healthz") => json!({}),
        ("GET", "/platform/me") => json!({ "local_paths": true }),
        ("GET", "/platform/session") => json!([session(), session()]),
        ("POST", "/platform/session/import") => json!({
            "session": session(), "events": 123, "files": "left", "leftOut": [SENTENCE],
        }),
        ("GET", "/project") => {
            json!([{ "id": PROJECT, "worktree": DIRECTORY, "time": { "created": 1 } }])
        }
        ("GET", path) if path.starts_with("/project/") => json!([session()]),
        ("GET", "/platform/ask") => json!([{
            "id": "per_0123456789abcdefghijklmnop", "sessionID": SESSION, "action": "shell", "resources": [COMMAND],
            "time": { "asked": 1 },
        }]),
        ("POST", path) if path.starts_with("/platform/ask/") => Value::Null,
        ("GET", "/platform/permission") => json!([{
            "id": "pms_0123456789abcdefghijklmnop", "projectID": PROJECT, "action": "shell", "pattern": COMMAND,
            "time": { "saved": 1 },
        }]),
        ("GET", "/provider") => json!({
            "all": [{ "id": "a-provider-of-models", "name": PERSON, "source": "env", "env": ["A_PROVIDER_API_KEY", "A_PROVIDER_TOKEN"] }],
            "connected": ["a-provider-of-models"],
        }),
        ("GET", "/platform/model") => json!({
            "version": format!("models.dev:{HASH}"), "default": "provider/model", "models": if query.contains("provider=") { json!([]) } else { json!([model()]) },
            "catalog": { "updated": "2026-11-01", "source": ISSUER, "seen": 1, "failure": SENTENCE },
        }),
        ("GET", "/platform/credential") => json!([credential()]),
        ("POST", "/platform/credential") => credential(),
        ("GET", path) if path.starts_with("/platform/provider/") => {
            json!({ "oauth": { "deviceUrl": ISSUER } })
        }
        ("POST", path) if path.starts_with("/platform/oauth/") => sign_in("pending"),
        ("GET", path) if path.starts_with("/platform/oauth/") => sign_in("complete"),
        ("GET", "/platform/usage") => usage(),
        ("GET" | "PUT", "/platform/limit") => json!({
            "to": 1_796_083_200_000_i64, "running": { "requests": 2, "most_nanos": 500_000_000 },
            "limits": [{ "whose": "usr_1", "name": PERSON, "monthly_nanos": 200_000_000_000_i64, "spent_nanos": 5, "reached": true }],
        }),
        ("GET", path) if path.starts_with("/platform/explain/") => explained(),
        ("GET", "/platform/check") => {
            json!([{ "invariant": "I1", "session": SESSION, "found": SENTENCE }])
        }
        ("GET", "/platform/key") => json!({ "data": [key()] }),
        ("POST" | "DELETE", path) if path.starts_with("/platform/key") => key(),
        ("GET", "/platform/user") => json!({ "data": [person()] }),
        ("PATCH", path) if path.starts_with("/platform/user/") => person(),
        ("GET", "/platform/sso") => json!({ "data": [connection()] }),
        ("POST", path) if path.ends_with("/test") => {
            json!({ "url": format!("{ISSUER}/authorize?state={HASH}"), "expires_at": i64::MAX })
        }
        ("GET" | "POST" | "PATCH", path) if path.starts_with("/platform/sso") => connection(),
        ("GET", "/platform/recovery") => json!({ "made_at": 1, "used": 8, "left": 0 }),
        ("POST", "/platform/recovery") => json!({ "codes": ["abcd-efgh-ijkl-mnop"] }),
        ("POST", "/platform/login") => json!({ "url": format!("{ISSUER}/login#{HASH}") }),
        ("DELETE", _) => Value::Null,
        _ => {
            let text = format!("{method} {uri} is not scripted: {SENTENCE} {body:?}");
            return (StatusCode::NOT_FOUND, text).into_response();
        }
    };
    said(&answer)
}

fn said(answer: &Value) -> Response {
    if answer.is_null() {
        return StatusCode::NO_CONTENT.into_response();
    }
    axum::Json(answer).into_response()
}

fn of_session(method: &str, below: &str, query: &str) -> Response {
    let waits = json!({ "id": MESSAGE, "seq": 2, "delivery": "queue", "first": true });
    let answer = match (method, below) {
        ("GET" | "PATCH", "") | ("POST", "/fork" | "/revert" | "/unrevert" | "/revert/commit") => {
            session()
        }
        ("GET", "/message") => messages(),
        ("GET", "/log") if query.contains("after=0") => json!([event()]),
        ("GET", "/log") => json!([]),
        ("GET", "/repository") => json!({
            "url": ISSUER, "commit": &HASH[..40], "branch": "refs/heads/main", "state": "filled", "bytes": 1, "sent": false,
        }),
        ("GET", "/bundle") => Value::Null,
        ("GET", "/export") => {
            return "{\"type\":\"session\",\"events\":3}\n{\"type\":\"end\"}\n".into_response();
        }
        ("POST", "/compact" | "/move") => waits,
        ("GET", "/inbox") => json!([{
            "id": MESSAGE, "kind": "prompt", "delivery": "queue", "seq": 2, "time": { "created": 1 }, "texts": [TITLE],
        }]),
        ("PATCH", _) => waits,
        ("POST", "/resume") => json!({ "resumed": true }),
        ("POST", "/wait") => json!({ "busy": true, "outcome": null, "seq": 3 }),
        ("POST", "/abort") => json!({ "interrupted": true, "resumed": false }),
        ("POST", "/rebuild") => json!({
            "session": SESSION, "exact": false, "events": 3, "missing": [SENTENCE], "added": [TITLE],
        }),
        ("GET", "/children") => json!([session()]),
        ("GET", "/usage") => {
            let used = json!({
                "tokens": { "input": 123_456, "output": 7_890 }, "cost": 12.5, "estimate": 20.25,
                "priceVersions": [format!("models.dev:{HASH}")],
            });
            json!({ "session": used, "tree": used, "sessions": 2 })
        }
        ("GET", "/context") => json!({ "plan": { "text": SENTENCE } }),
        ("GET", "/diff") => json!({ "more": 3, "files": [
            { "file": FILE, "status": "modified", "additions": 1, "deletions": 1, "patch": "@@ -1 +1 @@\n-one\n+two" },
            { "file": FILE, "status": "added", "additions": 20, "deletions": 0, "partial": true },
        ] }),
        ("PUT" | "DELETE", _) => Value::Null,
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    said(&answer)
}

fn session() -> Value {
    json!({
        "id": SESSION, "projectID": PROJECT, "directory": DIRECTORY, "title": TITLE, "agent": "build", "busy": false,
        "model": { "id": "a-model-with-a-long-name-2026-11-01", "providerID": "a-provider-of-models", "variant": "high" },
        "seq": 12, "outcome": "completed", "time": { "created": 1, "updated": 2 }, "cost": 12.5,
        "tokens": { "input": 123_456, "output": 7_890 }, "notices": [{ "message": SENTENCE }],
        "revert": { "messageID": MESSAGE, "files": [{ "file": FILE }] },
    })
}

fn messages() -> Value {
    json!([
        { "info": { "id": MESSAGE, "role": "user" }, "parts": [{ "type": "text", "text": "hello" }] },
        {
            "info": { "id": "msg_1", "role": "assistant", "error": { "data": { "message": SENTENCE } } },
            "parts": [{ "type": "tool", "tool": "shell", "state": { "status": "completed", "title": COMMAND } }],
        },
    ])
}

fn event() -> Value {
    let error = json!({ "code": "provider.internal", "message": SENTENCE });
    let data = json!({ "turn": TURN, "ordinal": 2, "at": 1, "error": error });
    json!({ "seq": 1, "id": "evt_1", "time": 1, "type": "retry.scheduled", "data": data })
}

fn model() -> Value {
    json!({
        "id": "a-provider-of-models/a-model-with-a-long-name-2026-11-01", "name": "m", "status": "deprecated", "connected": false,
        "limits": { "context": 200_000, "output": 64_000 }, "variants": ["minimal", "low", "medium", "high", "highest"],
        "usdPerMillionTokens": { "input": 1.25, "output": 10.0 },
    })
}

fn credential() -> Value {
    json!({
        "id": "crd_0123456789abcdefghijklmnop", "provider": "a-provider-of-models", "owner": "", "label": PERSON, "kind": "api-key",
        "hint": "f3Qa", "active": true, "fault": SENTENCE, "created": 0, "updated": 1_000,
    })
}

fn sign_in(status: &str) -> Value {
    json!({
        "attempt": "con_0123456789abcdefghijklmnop", "status": status, "expires": i64::MAX, "userCode": "ABCD-EFGH",
        "verificationUrl": ISSUER, "verificationUrlComplete": format!("{ISSUER}?code=ABCD-EFGH"), "intervalMs": 1,
        "credential": "crd_0123456789abcdefghijklmnop",
    })
}

fn usage() -> Value {
    let row = json!({
        "start": 1_793_491_200_000_i64, "keys": { "person": "usr_1" }, "people": 12,
        "sums": { "prompts": 123, "turns": 4_567, "input_tokens": 123_456_789, "output_tokens": 12_345_678, "cost_nanos": 1_234_560_000_000_i64,
                  "calls": 1_000, "run_ms": 1_234_567 },
    });
    json!({ "by": ["person"], "names": { "usr_1": PERSON }, "rows": [row], "previous": { "rows": [row] } })
}

fn explained() -> Value {
    json!({
        "attempt": "att_0123456789abcdefghijklmnop", "turn": TURN, "session": SESSION, "ordinal": 2, "outcome": "completed",
        "model": "a-provider-of-models/a-model-with-a-long-name-2026-11-01", "variant": "high", "bodyHash": HASH, "rebuiltHash": HASH,
        "match": false, "problem": SENTENCE, "wireVersion": 1, "epoch": 1, "through": 7, "components": { "agent": HASH, "tools": HASH },
        "price": { "version": format!("models.dev:{HASH}"), "estimate": 0.5, "cost": 0.25 },
    })
}

fn key() -> Value {
    json!({
        "id": "key_0123456789abcdefghijklmnop", "name": TITLE, "owner": PERSON, "key": format!("oc_{HASH}"),
        "scopes": ["session.read", "session.prompt", "people.read", "settings.manage", "sso.manage"],
        "expires_at": 1_796_083_200_000_i64, "last_used_at": 1, "revoked_at": null,
    })
}

fn person() -> Value {
    json!({ "id": "usr_0123456789abcdefghijklmnop", "name": PERSON, "email": MAIL, "role": "member", "disabled": true, "last_seen_at": 1 })
}

fn connection() -> Value {
    json!({
        "id": "idp_0123456789abcdefghijklmnop", "name": "Example", "state": "draft", "issuer": ISSUER,
        "redirect_url": format!("{ISSUER}/auth/callback/idp_0123456789abcdefghijklmnop"),
        "report": { "is_good": true, "message": SENTENCE, "clock_ms": 5, "claims": { "name": PERSON, "email": MAIL } },
    })
}
