//! Tests of the egress against listeners on this machine.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stderr, reason = "a run says what it skipped, and why")]

mod addresses;
mod certificates;
mod corpus;
mod exit;
mod proxies;
mod redirects;
mod world;
