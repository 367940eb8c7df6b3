//! The client against npm's `aimock`, a server of five protocols that nobody here wrote: it reads our bodies its own
//! way, and writes streams as its authors understand the providers. `tests/third-party/aimock/server.mjs` says what it
//! answers. Run with node and npm, as `./dev test` brings them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::wildcard_enum_match_arm, reason = "a test picks the events that it is about")]

#[path = "../../../../tests/third-party/npm.rs"]
mod npm;

mod errors;
mod speaks;
mod tables;
mod world;
