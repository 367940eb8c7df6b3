//! Handlers for released OpenCode clients: `opencode run --attach`, the SDK, and most of `attach`. They call the same
//! verbs as the native handlers and answer in other shapes. Where the clients' contract says "this process", we
//! answer for the cluster.

pub(crate) mod asks;
pub(crate) mod auth;
pub(crate) mod config;
pub(crate) mod events;
pub(crate) mod files;
pub(crate) mod listing;
pub(crate) mod messages;
pub(crate) mod places;
pub(crate) mod projects;
pub(crate) mod refusal;
pub(crate) mod second;
pub(crate) mod sessions;
pub(crate) mod settings;
pub(crate) mod summarize;
pub(crate) mod todo;
pub(crate) mod vcs;

mod answer;
mod catalog;
mod local;
mod place;
