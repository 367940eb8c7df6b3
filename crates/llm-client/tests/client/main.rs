//! Tests of the client against real servers over loopback, and against a simulated transport.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod dispatch;
mod exchange;
mod failures;
mod routes;
mod seam;
mod server;
