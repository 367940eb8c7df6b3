//! The way of spans to a collector: OTLP over HTTP, in the background.

use std::time::Duration;

use ::traces::{Content, Resource, Settings, Spans, encode};
use clap::Args;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tasks::{CancellationToken, OnCancel, OnError, TaskGroup, TaskKind};

use super::ServeError;

const EXPORT: TaskKind = TaskKind::new("trace exporter", OnError::Log, OnCancel::Wait);

/// The most spans of a request, and how long the first of them waits for others.
const BATCH: usize = 512;
const GATHER: Duration = Duration::from_secs(1);
/// How long a collector may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A kind of text that spans may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Recorded {
    /// Texts of prompts.
    Prompts,
    /// Arguments of tool calls.
    ToolArguments,
    /// Results of tool calls.
    ToolOutput,
}

impl Recorded {
    const fn word(self) -> &'static str {
        match self {
            Self::Prompts => "prompts",
            Self::ToolArguments => "tool-arguments",
            Self::ToolOutput => "tool-output",
        }
    }
}

/// Where traces go.
#[derive(Clone, Default, Args)]
#[command(next_help_heading = "Telemetry")]
pub struct TraceArgs {
    /// Send traces to this collector by OTLP over HTTP, such as http://127.0.0.1:4318 [default: nothing is sent]
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<Url>,
    /// Headers for the collector, such as `authorization=Bearer TOKEN`
    #[arg(
        long,
        value_name = "NAME=VALUE,…",
        env = "OTEL_EXPORTER_OTLP_HEADERS",
        hide_env_values = true
    )]
    pub otlp_headers: Option<String>,
    /// Share of prompts whose work is traced, 0 to 1; the same for all processes
    #[arg(long, value_name = "SHARE", default_value_t = 1., env = "OPENCODE_CLOUD_OTLP_SHARE")]
    pub otlp_share: f64,
    /// Texts that traces have; without, they have none
    #[arg(
        long,
        value_name = "KIND,…",
        value_enum,
        value_delimiter = ',',
        env = "OPENCODE_CLOUD_RECORD_CONTENT"
    )]
    pub record_content: Vec<Recorded>,
}

impl std::fmt::Debug for TraceArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceArgs")
            .field("has_endpoint", &self.otlp_endpoint.is_some())
            .field("otlp_share", &self.otlp_share)
            .field("record_content", &self.record_content)
            .finish_non_exhaustive()
    }
}

impl TraceArgs {
    /// Begins to trace, if a collector is named.
    ///
    /// # Errors
    /// When a flag is wrong. A collector that is away is no error.
    pub(crate) fn start(&self, name: &'static str, role: &TaskGroup) -> Result<(), ServeError> {
        let Some(endpoint) = &self.otlp_endpoint else { return Ok(()) };
        if !(0. ..=1.).contains(&self.otlp_share) {
            return Err(ServeError::Usage("--otlp-share is a number from 0 to 1".to_owned()));
        }
        let has = |kind| self.record_content.contains(&kind);
        let content = Content {
            prompts: has(Recorded::Prompts),
            tool_arguments: has(Recorded::ToolArguments),
            tool_output: has(Recorded::ToolOutput),
        };
        let client = reqwest::Client::builder()
            .timeout(PATIENCE)
            .default_headers(headers(self.otlp_headers.as_deref().unwrap_or_default())?)
            .build()
            .map_err(|error| ServeError::stopped("traces cannot be sent", &error))?;
        let url = format!("{}/v1/traces", endpoint.as_str().trim_end_matches('/'));
        let resource = Resource { role: name, version: env!("CARGO_PKG_VERSION") };
        if let Some(spans) = ::traces::start(Settings { share: self.otlp_share, content }) {
            let exporter = Exporter { client, url, resource, is_away: false };
            let closing = role.token();
            role.spawn(EXPORT, async move {
                exporter.run(spans, closing).await;
                Ok::<(), std::convert::Infallible>(())
            });
        }
        Ok(())
    }

    /// Returns the same settings as arguments for another process.
    pub(crate) fn words(&self) -> Vec<String> {
        let Some(endpoint) = &self.otlp_endpoint else { return Vec::new() };
        let mut words = vec![
            format!("--otlp-endpoint={endpoint}"),
            format!("--otlp-share={}", self.otlp_share),
        ];
        let kinds: Vec<_> = self.record_content.iter().map(|kind| kind.word()).collect();
        if !kinds.is_empty() {
            words.push(format!("--record-content={}", kinds.join(",")));
        }
        words
    }

    /// Returns the headers, which are secret, as an environment variable.
    pub(crate) fn variables(&self) -> Option<(&'static str, String)> {
        self.otlp_headers.clone().map(|headers| ("OTEL_EXPORTER_OTLP_HEADERS", headers))
    }
}

fn headers(text: &str) -> Result<HeaderMap, ServeError> {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/x-protobuf"));
    for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
        let parsed = pair.split_once('=').and_then(|(name, value)| {
            let name: HeaderName = name.trim().parse().ok()?;
            let mut value: HeaderValue = value.trim().parse().ok()?;
            value.set_sensitive(true);
            Some((name, value))
        });
        let (name, value) = parsed.ok_or_else(|| {
            ServeError::Usage("--otlp-headers: write NAME=VALUE, several with commas".to_owned())
        })?;
        headers.insert(name, value);
    }
    Ok(headers)
}

struct Exporter {
    client: reqwest::Client,
    url: String,
    resource: Resource,
    is_away: bool,
}

impl Exporter {
    /// Sends spans until the role ends, and then those that are left.
    async fn run(mut self, mut spans: Spans, closing: CancellationToken) {
        loop {
            let batch = tokio::select! {
                biased;
                () = closing.cancelled() => break,
                batch = spans.next(BATCH) => batch,
            };
            let mut batch = batch;
            if batch.len() < BATCH {
                tokio::select! {
                    () = closing.cancelled() => {}
                    () = tokio::time::sleep(GATHER) => {}
                }
                batch.extend(spans.waiting(BATCH - batch.len()));
            }
            self.send(batch, &spans).await;
        }
        let left = spans.waiting(BATCH);
        if !left.is_empty() {
            self.send(left, &spans).await;
        }
    }

    /// Sends spans once. What a collector does not take is lost: nothing waits for it.
    async fn send(&mut self, batch: Vec<::traces::Span>, spans: &Spans) {
        let count = batch.len();
        let sent = self.client.post(&self.url).body(encode(batch, self.resource)).send().await;
        let refused = match sent {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answers {}", answer.status())),
            // Without its URL, which may hold a password.
            Err(error) => Some(error.without_url().to_string()),
        };
        let dropped = spans.dropped();
        if dropped > 0 {
            tracing::warn!(dropped, "spans were dropped: the collector is slower than the work");
        }
        match refused {
            Some(why) if !self.is_away => {
                tracing::warn!(%why, lost = count, "the collector of traces does not take them; they are lost until it does");
                self.is_away = true;
            }
            None if self.is_away => {
                tracing::info!("the collector takes traces again");
                self.is_away = false;
            }
            Some(_) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_and_hidden() {
        let read = headers("authorization=Bearer x, x-a = b=c").expect("headers");
        assert_eq!(read["x-a"], "b=c");
        assert!(!format!("{read:?}").contains("Bearer"));
        let error = headers("CANARY").expect_err("no pair").to_string();
        assert!(error.contains("NAME=VALUE") && !error.contains("CANARY"));
    }
}
