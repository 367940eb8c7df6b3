//! Tests of the egress against listeners on this machine.

#![allow(clippy::unwrap_used, reason = "tests")]

mod addresses;
mod exit;
mod proxies;
mod redirects;
mod world;
