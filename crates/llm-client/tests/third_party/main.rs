//! Tests of the client against npm's `aimock`, an independent server of five protocols: it has its own
//! reading of our bodies, and writes streams as its authors understand the providers.
//! `tests/third-party/aimock/server.mjs` defines its answers. Needs node and npm, which `./dev test`
//! installs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::wildcard_enum_match_arm, reason = "a test picks the events that it is about")]

#[path = "../../../../tests/third-party/npm.rs"]
mod npm;

mod errors;
mod speaks;
mod tables;
mod world;
