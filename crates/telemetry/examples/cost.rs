//! The price of counting, for `load-tests/README.md`: the calls that one turn with a tool makes, again and again.

#![expect(clippy::print_stdout, reason = "an example prints its figures")]

use std::time::{Duration, Instant};

use telemetry::{exposition, metrics};

const TURNS: u32 = 100_000;

fn main() {
    let took = Duration::from_millis(7);
    turn(took); // the first one makes the series
    let begun = Instant::now();
    for _ in 0..TURNS {
        turn(took);
    }
    let each = begun.elapsed() / TURNS;
    let begun = Instant::now();
    let bytes = exposition().len();
    println!("a turn counts for {each:?}; a scrape takes {:?} for {bytes} bytes", begun.elapsed());
}

/// As many calls as a prompt with one tool call makes: two requests to the model, eight statements, two captures.
fn turn(took: Duration) {
    let metrics = metrics();
    metrics.request("/project/{project}/session/{session}/message", 200, took);
    metrics.admission("stored");
    for _ in 0..8 {
        let _busy = metrics.db_connections.held();
        metrics.db_waits.took(took);
        metrics.statement(true, took);
    }
    for _ in 0..2 {
        metrics.turn("completed", took);
        metrics.attempt("anthropic", "completed", took);
        let tokens = [("input", 900), ("output", 90), ("cache_read", 800), ("cache_write", 7)];
        metrics.used("anthropic", tokens);
        metrics.capture(true);
        metrics.blob("write", true, took);
        metrics.blob_moved("write", 900);
    }
    metrics.tool("shell", "completed", took);
    metrics.queue_seconds.took(took);
    metrics.drain_ended("completed");
}
