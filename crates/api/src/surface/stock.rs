//! The dialect of released OpenCode clients: `opencode run --attach`, the SDK, and most of `attach`.
//! Same store calls as the native routes, where the request is the same also the same handler; other shapes; where that contract says "this process", we
//! answer for the cluster.

pub(crate) mod config;
pub(crate) mod events;
pub(crate) mod files;
pub(crate) mod listing;
pub(crate) mod messages;
pub(crate) mod sessions;
pub(crate) mod summarize;

mod answer;
mod catalog;
mod place;
