//! All metrics, once: names, labels and meanings. `docs/metrics.md` is made from this table.

use std::fmt::Write;
use std::sync::LazyLock;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::kind::{Count, Kind, Level, Times};
use crate::names::{Label, Names, OTHER};
use crate::process::{ProcessCollector, TABLE};

/// One line of the catalogue: name, kind, labels, meaning.
type Line = (String, &'static str, [&'static str; 2], &'static str);

macro_rules! catalogue {
    ($( $field:ident: $kind:ident = $name:literal [$one:literal, $two:literal] $help:literal; )+) => {
        /// The metrics of this process. Each method costs a look-up and an atomic addition.
        pub struct Metrics {
            $( #[doc = $help] pub $field: $kind, )+
            registry: Registry,
            routes: Names,
            providers: Names,
            tools: Names,
        }

        impl Metrics {
            fn new() -> Self {
                let mut registry = Registry::default();
                $( let $field = $kind::register(&mut registry, $name, [$one, $two], $help); )+
                registry.register_collector(Box::new(ProcessCollector));
                let (routes, providers, tools) = (Names::new(400), Names::new(64), Names::new(64));
                Self { $( $field, )+ registry, routes, providers, tools }
            }
        }

        fn lines() -> Vec<Line> {
            vec![ $( (
                format!("{}{}", $name, <$kind as Kind>::END),
                <$kind as Kind>::WORD,
                [$one, $two],
                $help,
            ), )+ ]
        }
    };
}

catalogue! {
    build: Level = "oc_build_info" ["version", "role"] "The build and the role of the process; always 1";
    http: Count = "oc_http_requests" ["route", "status"] "Answered requests by route and by the class of their status";
    http_seconds: Times = "oc_http_seconds" ["route", ""] "Time from a request to the head of its answer";
    admissions: Count = "oc_admissions" ["outcome", ""] "Prompts by what became of them: stored, retry, refused or failed";
    turns: Times = "oc_turn_seconds" ["outcome", ""] "Time of a Provider Turn with all its attempts, up to the end of the reply";
    attempts: Count = "oc_provider_attempts" ["provider", "outcome"] "Wire requests to providers: completed, interrupted, or the reason of the failure";
    attempt_seconds: Times = "oc_provider_seconds" ["provider", ""] "Time of a wire request, up to the end of its stream";
    tokens: Count = "oc_provider_tokens" ["provider", "kind"] "Tokens as providers counted them";
    tool_seconds: Times = "oc_tool_seconds" ["tool", "outcome"] "Time of a tool call, up to its bounded result";
    drains: Level = "oc_drains" ["", ""] "Session Drains that run";
    drain_ends: Count = "oc_drain_ends" ["exit", ""] "Ends of Session Drains; `waiting` is a session that sleeps until somebody answers";
    leases: Level = "oc_leases" ["", ""] "Locations that the worker holds";
    queue: Level = "oc_queue_sessions" ["", ""] "Sessions that wait for a slot";
    queue_seconds: Times = "oc_queue_seconds" ["", ""] "Time for which a session waited for a slot";
    fenced: Count = "oc_fenced" ["", ""] "Drains that stopped because their claim or Location had passed on";
    db_waits: Times = "oc_db_acquire_seconds" ["", ""] "Time for which a statement waited for its turn and its connection";
    db_seconds: Times = "oc_db_seconds" ["outcome", ""] "Time of a statement or a short transaction";
    db_connections: Level = "oc_db_busy_connections" ["", ""] "Connections to Postgres in use";
    signals: Level = "oc_signals_connected" ["", ""] "Whether NATS is connected";
    blob_seconds: Times = "oc_blob_seconds" ["operation", "outcome"] "Time of a request for blobs, with its repetitions";
    blob_bytes: Count = "oc_blob_bytes" ["operation", ""] "Bytes of blobs that were read and stored";
    blob_circuit: Level = "oc_blob_circuit_open" ["", ""] "Whether object storage is considered to be away";
    captures: Count = "oc_captures" ["outcome", ""] "Looks at the files of a workspace: captured or failed";
    cells: Level = "oc_sandbox_cells" ["", ""] "Cells in which commands of sessions run";
    usage_failures: Count = "oc_usage_failures" ["", ""] "Tries to count the usage of a session that failed; it is tried again";
    overflow: Count = "oc_metrics_overflow" ["label", ""] "Times that a label's value was counted as `other`, since there were too many";
}

static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

/// Returns the metrics of this process.
#[must_use]
pub fn metrics() -> &'static Metrics {
    &METRICS
}

/// Returns all metrics as OpenMetrics text.
#[must_use]
pub fn exposition() -> String {
    let mut text = String::new();
    // Writing to a string fails only if a metric does, and ours do not.
    let _infallible = encode(&mut text, &metrics().registry);
    text
}

impl Metrics {
    /// Says which build and role this is. A process may have several roles.
    pub fn is(&self, version: &'static str, role: &'static str) {
        self.build.set_of([version, role], 1);
    }

    /// Counts an answered request. `route` is its pattern in the table of routes, never its path.
    pub fn request(&self, route: &str, status: u16, took: Duration) {
        let route = self.name(&self.routes, "route", route);
        let class = match status {
            100..=199 => "1xx",
            200..=299 => "2xx",
            300..=399 => "3xx",
            400..=499 => "4xx",
            _ => "5xx",
        };
        self.http.add([route, class], 1);
        self.http_seconds.took_of([route, ""], took);
    }

    /// Counts a prompt.
    pub fn admission(&self, outcome: &'static str) {
        self.admissions.add([outcome, ""], 1);
    }

    /// Counts a Provider Turn.
    pub fn turn(&self, outcome: &'static str, took: Duration) {
        self.turns.took_of([outcome, ""], took);
    }

    /// Counts a wire request.
    pub fn attempt(&self, provider: &str, outcome: &'static str, took: Duration) {
        let provider = self.name(&self.providers, "provider", provider);
        self.attempts.add([provider, outcome], 1);
        self.attempt_seconds.took_of([provider, ""], took);
    }

    /// Counts the tokens of a wire request, by kind.
    pub fn used(&self, provider: &str, tokens: [(&'static str, u64); 4]) {
        let provider = self.name(&self.providers, "provider", provider);
        for (kind, count) in tokens.into_iter().filter(|(_, count)| *count > 0) {
            self.tokens.add([provider, kind], count);
        }
    }

    /// Counts a tool call.
    pub fn tool(&self, tool: &str, outcome: &'static str, took: Duration) {
        let tool = self.name(&self.tools, "tool", tool);
        self.tool_seconds.took_of([tool, outcome], took);
    }

    /// Counts the end of a drain.
    pub fn drain_ended(&self, exit: &'static str) {
        self.drain_ends.add([exit, ""], 1);
        if matches!(exit, "fenced" | "superseded") {
            self.fenced.add(["", ""], 1);
        }
    }

    /// Counts a statement.
    pub fn statement(&self, is_answered: bool, took: Duration) {
        let outcome = if is_answered { "answered" } else { "failed" };
        self.db_seconds.took_of([outcome, ""], took);
    }

    /// Counts a try to count the usage of a session that failed.
    pub fn usage_failed(&self) {
        self.usage_failures.add(["", ""], 1);
    }

    /// Counts a request for blobs.
    pub fn blob(&self, operation: &'static str, is_answered: bool, took: Duration) {
        let outcome = if is_answered { "answered" } else { "failed" };
        self.blob_seconds.took_of([operation, outcome], took);
    }

    /// Counts bytes of blobs.
    pub fn blob_moved(&self, operation: &'static str, bytes: usize) {
        self.blob_bytes.add([operation, ""], bytes as u64);
    }

    /// Counts a look at the files of a workspace.
    pub fn capture(&self, is_captured: bool) {
        self.captures.add([if is_captured { "captured" } else { "failed" }, ""], 1);
    }

    fn name(&self, names: &Names, label: &'static str, name: &str) -> &'static str {
        match names.label(name) {
            Label::Known(known) => known,
            Label::Other => {
                self.overflow.add([label, ""], 1);
                OTHER
            }
        }
    }
}

/// Returns the catalogue as a table in Markdown, for the documentation.
#[must_use]
pub fn table() -> String {
    let mut text = "| metric | kind | labels | meaning |\n| --- | --- | --- | --- |\n".to_owned();
    for (name, kind, labels, help) in lines() {
        let labels: Vec<_> = labels.into_iter().filter(|label| !label.is_empty()).collect();
        let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let _infallible = writeln!(text, "| `{name}` | {kind} | {labels} | {help} |");
    }
    for (name, kind, help) in TABLE {
        let _infallible = writeln!(text, "| `{name}` | {kind} |  | {help} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Why: every name costs memory in each process and in Prometheus, and a catalogue that nobody can read helps nobody.
    #[test]
    fn names_are_few_and_follow_the_rules_of_prometheus() {
        let lines = lines();
        assert!(lines.len() + TABLE.len() <= 30, "{} metrics", lines.len() + TABLE.len());
        let mut names = BTreeSet::new();
        for (name, kind, labels, help) in lines {
            assert!(names.insert(name.clone()), "{name} twice");
            assert!(name.starts_with("oc_"), "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            assert_eq!(kind == "histogram", name.ends_with("_seconds"), "{name}: unit last");
            assert!(!help.is_empty() && !help.ends_with('.'), "{name}: {help}");
            for banned in ["org", "user", "session", "path", "key", "model", "message"] {
                assert!(!labels.contains(&banned), "{name} has a label of tenants");
            }
        }
    }

    /// Hostile names of a tenant's own models and tools.
    #[test]
    fn a_tenant_cannot_make_more_series_than_there_are() {
        for nth in 0..10_000 {
            metrics().attempt(&format!("p{nth}\n\"}}"), "completed", Duration::ZERO);
            metrics().tool(&format!("t{nth}"), "failed", Duration::ZERO);
        }
        let text = exposition();
        let series =
            text.lines().filter(|line| line.starts_with("oc_provider_attempts_total")).count();
        assert_eq!(series, 65, "64 and other");
        assert!(text.contains(r#"oc_metrics_overflow_total{label="tool"} "#), "{text}");
        assert!(text.len() < 300_000, "{} bytes", text.len());
    }

    #[test]
    fn exposition_ends_as_open_metrics_do_and_shows_the_process() {
        metrics().is("0.0.0", "test");
        metrics().drains.set(3);
        metrics().request("/project/{project}", 404, Duration::from_millis(3));
        let text = exposition();
        assert!(text.ends_with("# EOF\n"));
        for line in [
            r#"oc_build_info{version="0.0.0",role="test"} 1"#,
            "oc_drains 3",
            r#"oc_http_requests_total{route="/project/{project}",status="4xx"} 1"#,
            r#"oc_http_seconds_bucket{le="0.005",route="/project/{project}"} 1"#,
            "# TYPE process_cpu_seconds counter",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        let of = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).expect("a line");
            line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number")
        };
        assert!(of("process_resident_memory_bytes ") > 1e6 && of("process_open_fds ") > 2.);
        assert!(of("process_start_time_seconds ") > 1.7e9);
    }

    #[test]
    fn the_documentation_has_the_catalogue() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let page = std::fs::read_to_string(path).expect("docs/metrics.md");
        assert!(page.contains(&table()), "put this table into docs/metrics.md:\n\n{}", table());
    }
}
