//! The egress against listeners of this machine.

#![allow(clippy::unwrap_used, reason = "tests")]

mod addresses;
mod proxies;
mod redirects;
mod world;
