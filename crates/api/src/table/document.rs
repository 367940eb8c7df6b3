//! The document of our own dialect, as JSON and as a page.

use std::fmt::Write as _;

use axum::Json;
use axum::response::Html;
use serde_json::Value;

use super::openapi::openapi;
use super::policy::Policy::{self, Open};
use super::route::Route;

/// The routes of the document. It does not have them itself.
pub(super) fn routes() -> [Route; 2] {
    const WHY: Policy = Open("it is the same for everybody, and in the repository");
    [Route::get("/platform/openapi.json", WHY, json), Route::get("/platform/reference", WHY, page)]
}

async fn json() -> Json<Value> {
    Json(openapi().clone())
}

async fn page() -> Html<String> {
    Html(reference(openapi()))
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c1c1c;\
background:#fff}code,pre{font:14px/1.45 ui-monospace,monospace}h2{border-top:1px solid #ccc;padding-top:1rem}summary{cursor:\
pointer;padding:.3rem 0}summary b{display:inline-block;min-width:4.5rem}pre{background:#f4f4f4;padding:.75rem;overflow:auto}\
.scope{color:#555}@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#161616}pre{background:#222}.scope{color:#aaa}}";

/// Writes the document as one page without scripts: operations by their subject, then schemas.
fn reference(document: &Value) -> String {
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>OpenCode Cloud: interface</title><style>{STYLE}</style><h1>OpenCode Cloud: interface</h1><p>{}</p>\
         <p><a href=/platform/openapi.json>This as an OpenAPI 3.1 document</a></p>",
        escaped(document["info"]["description"].as_str().unwrap_or_default())
    );
    let mut tag = "";
    let mut all: Vec<(&str, &str, &str, &Value)> = operations(document).collect();
    all.sort_by_key(|(tag, ..)| *tag);
    for (of, method, path, operation) in all {
        if of != tag {
            tag = of;
            push(&mut page, format_args!("<h2>{}</h2>", escaped(tag)));
        }
        write_operation(&mut page, method, path, operation);
    }
    push(&mut page, format_args!("<h2>Schemas</h2>"));
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        let (name, text) = (escaped(name), escaped(&format!("{schema:#}")));
        push(
            &mut page,
            format_args!(
                "<details id={name}><summary><code>{name}</code></summary><pre>{text}</pre></details>"
            ),
        );
    }
    page
}

fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &str, &Value)> {
    let paths = document["paths"].as_object().into_iter().flatten();
    paths.flat_map(|(path, methods)| {
        methods.as_object().into_iter().flatten().map(move |(method, operation)| {
            (
                operation["tags"][0].as_str().unwrap_or_default(),
                method.as_str(),
                path.as_str(),
                operation,
            )
        })
    })
}

fn write_operation(page: &mut String, method: &str, path: &str, operation: &Value) {
    let text = |name: &str| escaped(operation[name].as_str().unwrap_or_default());
    let scope = operation["x-scope"].as_str().unwrap_or("no key");
    push(
        page,
        format_args!(
            "<details><summary><b>{}</b> <code>{}</code> {} <span class=scope>({scope})</span></summary>",
            method.to_ascii_uppercase(),
            escaped(path),
            text("summary")
        ),
    );
    for part in ["parameters", "requestBody", "responses"] {
        if let Some(said) = operation.get(part).filter(|said| **said != serde_json::json!([])) {
            push(page, format_args!("<h4>{part}</h4><pre>{}</pre>", escaped(&format!("{said:#}"))));
        }
    }
    page.push_str("</details>");
}

fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("a text grows");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
