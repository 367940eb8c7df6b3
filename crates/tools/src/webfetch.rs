//! `webfetch`: shows a page of the web. Only through the egress client, which checks every address, redirects included.

mod page;

use std::time::Duration;

use async_trait::async_trait;
use domain::ToolClass;
use egress::{EgressError, FetchLimits, Fetched, JudgeRedirect, Refused, Transport};
use encoding_rs::{Encoding, UTF_8};
use http::header::{ACCEPT, ACCEPT_LANGUAGE, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::json;
use url::Url;

use crate::arguments;
use crate::call::{Stopped, ToolCall, ToolContext, ToolDefinition, ToolOutcome, fields, title};
use crate::files::blocking;
use crate::read::is_binary;
use crate::set::Tool;
use page::Page;

const DEFAULT_SECONDS: u64 = 30;
const MAX_SECONDS: u64 = 120;
/// The largest body, in bytes.
const MAX_BYTES: usize = 5 * 1024 * 1024;
const MAX_REDIRECTS: usize = 5;
/// The longest address, in bytes.
const MAX_URL: usize = 8 * 1024;
/// The start of a body that is looked at to tell text from other bytes.
const SNIFFED: usize = 8 * 1024;

/// The start of a body in which it may declare its encoding, as browsers look for that.
const DECLARING: usize = 1024;

pub(crate) struct WebFetch {
    pub(crate) transport: Transport,
}

#[derive(Deserialize)]
struct Arguments {
    url: String,
    #[serde(default)]
    format: Format,
    #[serde(alias = "timeout")]
    timeout_s: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Format {
    #[default]
    Markdown,
    Text,
    Html,
}

#[async_trait]
impl Tool for WebFetch {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "webfetch".into(),
            description: "Fetches a page of the web by its http or https address and returns it as Markdown, or as text or \
                          html if asked. Reads only: it sends no data and signs in nowhere. Text of up to 5 MiB; no images \
                          and other binary files. It reaches the hosts that commands reach, and no address inside the network."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "url": {"type": "string", "description": "The whole address, with https://"},
                    "format": {"type": "string", "enum": ["markdown", "text", "html"], "description": "markdown unless given"},
                    "timeout_s": {"type": "integer", "minimum": 1, "maximum": MAX_SECONDS, "description": "When to give up, in seconds; 30 unless given"}
                },
                "required": ["url"]
            }),
            result_schema: Some(fields(&["url", "status", "type", "bytes", "cut"], &json!({
                "url": {"type": "string"},
                "status": {"type": "integer"},
                "type": {"type": "string"},
                "bytes": {"type": "integer", "minimum": 0},
                "cut": {"type": "boolean"}
            }))),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Pure
    }

    async fn run(&self, call: &ToolCall, context: &ToolContext) -> Result<ToolOutcome, Stopped> {
        let Arguments { url: given, format, timeout_s } = arguments::parse(call)?;
        let url = parsed(&given)?;
        // Zero is meant as no limit of the model's.
        let seconds = timeout_s.filter(|seconds| *seconds > 0).unwrap_or(DEFAULT_SECONDS);
        let seconds = seconds.min(MAX_SECONDS);
        let time = Duration::from_secs(seconds);
        let limits = FetchLimits { time, bytes: MAX_BYTES, redirects: MAX_REDIRECTS };
        let rules = context.reads.clone();
        let judge = move |to: &Url| rules.check_page(to.as_str());
        let fetched = tokio::select! {
            biased;
            () = context.cancel.cancelled() => return Err(Stopped::Interrupted),
            fetched = Box::pin(self.fetch(url, format, limits, &judge)) => fetched,
        };
        let fetched = fetched.map_err(|error| Stopped::because(told(&given, &error)))?;
        blocking(move || shown(&given, &fetched, format)).await
    }
}

impl WebFetch {
    async fn fetch(
        &self,
        url: Url,
        format: Format,
        limits: FetchLimits,
        judge: JudgeRedirect<'_>,
    ) -> Result<Fetched, EgressError> {
        let first = self.transport.fetch_judged(url.clone(), headers(format), limits, judge);
        let fetched = first.await;
        match fetched {
            // As browsers do: the page is looked for where it may be fetched.
            Err(EgressError::Refused(Refused::Plain(_))) if url.scheme() == "http" => {
                let mut secure = url;
                if secure.set_scheme("https").is_err() {
                    return fetched;
                }
                self.transport.fetch_judged(secure, headers(format), limits, judge).await
            }
            fetched => fetched,
        }
    }
}

fn headers(format: Format) -> HeaderMap {
    let accept = match format {
        Format::Markdown => "text/markdown, text/html;q=0.9, text/plain;q=0.8, */*;q=0.1",
        Format::Text => "text/plain, text/markdown;q=0.9, text/html;q=0.8, */*;q=0.1",
        Format::Html => "text/html, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.1",
    };
    HeaderMap::from_iter([
        (ACCEPT, HeaderValue::from_static(accept)),
        (ACCEPT_LANGUAGE, HeaderValue::from_static("en, *;q=0.5")),
    ])
}

fn parsed(given: &str) -> Result<Url, Stopped> {
    if given.len() > MAX_URL {
        return Err(Stopped::because(format!("the address is longer than {MAX_URL} bytes")));
    }
    let url = Url::parse(given.trim()).map_err(|error| {
        Stopped::because(format!("{given} is no address ({error}); give it whole, with https://"))
    })?;
    if matches!(url.scheme(), "http" | "https") {
        return Ok(url);
    }
    Err(Stopped::because(format!(
        "webfetch fetches http and https only, not {}; read files with read",
        url.scheme()
    )))
}

/// Returns why there is no page, and what to do.
fn told(given: &str, error: &EgressError) -> String {
    let advice = match error {
        EgressError::Refused(_) => "use another source, or ask the user for the text",
        EgressError::Network { .. } => "check the address, or try again later",
        EgressError::Slow(_) => "give a larger timeout_s, or use another source",
        EgressError::TooLarge(_) => {
            "fetch a smaller page, or download it with shell if commands have a network"
        }
        EgressError::Redirects(_) | EgressError::BadRedirect => {
            "fetch the address that it should lead to"
        }
        EgressError::Barred(why) => return format!("{given} cannot be fetched: {why}"),
    };
    format!("{given} cannot be fetched: {error}; {advice}")
}

/// The kind of a body, by its type.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Html,
    Text,
    Image,
    Other,
}

fn kind(mime: &str) -> Kind {
    let is_text = |subtype: &str| {
        let known = [
            "json",
            "xml",
            "javascript",
            "ecmascript",
            "yaml",
            "x-yaml",
            "toml",
            "x-sh",
            "sql",
            "graphql",
            "x-ndjson",
        ];
        known.contains(&subtype)
            || subtype.ends_with("+json")
            || subtype.ends_with("+xml")
            || subtype.ends_with("+yaml")
    };
    match mime.split_once('/') {
        Some(("text", "html") | ("application", "xhtml+xml")) => Kind::Html,
        Some(("text", _)) | None => Kind::Text,
        Some(("application", subtype)) if is_text(subtype) => Kind::Text,
        Some(("image", "svg+xml")) => Kind::Text,
        Some(("image", _)) => Kind::Image,
        Some(_) => Kind::Other,
    }
}

fn shown(given: &str, fetched: &Fetched, format: Format) -> Result<ToolOutcome, Stopped> {
    let Fetched { url, status, headers, body } = fetched;
    if !status.is_success() {
        return Err(Stopped::because(format!(
            "{given} cannot be fetched: the server answered {status}; check the address, or use another source"
        )));
    }
    let content_type =
        headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let (mime, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    let mime = mime.trim().to_ascii_lowercase();
    let kind = kind(&mime);
    let named = if mime.is_empty() { "of no known type" } else { mime.as_str() };
    match kind {
        Kind::Image => {
            return Err(Stopped::because(format!(
                "{given} is an image ({named}), and webfetch shows text only; ask the user about it if it matters"
            )));
        }
        Kind::Other => {
            return Err(Stopped::because(format!(
                "{given} is a binary file ({named}), and webfetch shows text only; look for a page with its text"
            )));
        }
        Kind::Html | Kind::Text => {}
    }
    let text = decoded(body, parameters, &kind);
    if is_binary(&text.as_bytes()[..text.len().min(SNIFFED)]) {
        return Err(Stopped::because(format!(
            "{given} is a binary file although it is called {named}, and webfetch shows text only; look for a page with its \
             text"
        )));
    }
    let Page { text, is_cut } = match (&kind, format) {
        (Kind::Html, Format::Markdown) => page::markdown(&text),
        (Kind::Html, Format::Text) => page::plain(&text),
        (Kind::Html, Format::Html) | (Kind::Text | Kind::Image | Kind::Other, _) => {
            Page { text, is_cut: false }
        }
    };
    let structured = json!({
        "url": url.as_str(), "status": status.as_u16(), "type": mime, "bytes": body.len(), "cut": is_cut,
    });
    let is_empty = text.trim().is_empty();
    let mut outcome = ToolOutcome::completed(title("Fetched", given), text, Some(structured));
    let mut notes = Vec::new();
    if is_empty {
        notes.push("(the page has no text; it may need a browser)".to_owned());
    }
    if is_cut {
        notes.push(
            "(parts of the page are nested too deeply and were left out; ask for format html)"
                .to_owned(),
        );
    }
    if url.as_str().trim_end_matches('/') != given.trim().trim_end_matches('/') {
        let to: String = url.as_str().chars().take(200).collect();
        notes.push(format!("(it led to {to})"));
    }
    outcome.footer = notes.join("\n");
    Ok(outcome)
}

/// Returns the text of a body, in the encoding that its type names, or else itself; UTF-8 unless one of them names one.
fn decoded(body: &[u8], parameters: &str, kind: &Kind) -> String {
    let charset = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
    });
    let encoding = charset.and_then(|label| Encoding::for_label(label.as_bytes()));
    let encoding = encoding.or_else(|| find_declared(body, kind));
    encoding.unwrap_or(UTF_8).decode(body).0.into_owned()
}

/// Returns the encoding that the beginning of XML or of a page declares.
fn find_declared(body: &[u8], kind: &Kind) -> Option<&'static Encoding> {
    let start = String::from_utf8_lossy(&body[..body.len().min(DECLARING)]).to_ascii_lowercase();
    let of_xml = start.strip_prefix("<?xml").and_then(|xml| xml.split("?>").next());
    let of_xml = of_xml.and_then(|xml| read_label(xml, "encoding"));
    let mut tags = start.split("<meta").skip(1).filter(|_| *kind == Kind::Html);
    let of_page =
        || tags.find_map(|tag| read_label(tag.split('>').next().unwrap_or(tag), "charset"));
    let label = of_xml.or_else(of_page)?;
    // Who declares UTF-16 in bytes of ASCII means UTF-8.
    Encoding::for_label(label.as_bytes()).map(Encoding::output_encoding)
}

/// Returns the value behind a name and `=`.
fn read_label<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.match_indices(name).find_map(|(at, _)| {
        let value = text[at + name.len()..].trim_start().strip_prefix('=')?.trim_start();
        let is_end = |c: char| c.is_whitespace() || "\"';/".contains(c);
        value.trim_start_matches(['"', '\'']).split(is_end).next()
    })
}
