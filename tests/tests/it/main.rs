//! Journeys through the real service, as its users take them, with the oracle after each; and the house rules.
//!
//! `.config/nextest.toml` names the journeys that start processes, so that only a few run at once.

mod admission;
mod asks;
mod attached;
mod blobs;
mod catalog;
mod cluster;
mod console;
mod contract;
mod credentials;
mod docs;
mod fairness;
mod faults;
mod files;
mod generated;
#[path = "../../third-party/idp.rs"]
mod idp;
mod life;
mod metrics;
#[path = "../../third-party/npm.rs"]
mod npm;
mod person;
mod providers;
mod provision;
mod questions;
mod rates;
mod refusals;
mod repositories;
mod sandbox;
mod sdk;
mod shells;
mod sso;
mod stock;
mod streams;
mod terminal;
mod tidy;
mod tidy_folders;
mod tiers;
mod travel;
mod usage;
mod web;
mod went_back;
