//! Handlers of the service's own routes.

pub(crate) mod agents;
pub(crate) mod asks;
pub(crate) mod credentials;
pub(crate) mod diff;
pub(crate) mod entries;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod fork;
pub(crate) mod health;
pub(crate) mod import;
pub(crate) mod inbox;
pub(crate) mod instructions;
pub(crate) mod log;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod moves;
pub(crate) mod oauth;
pub(crate) mod platform;
pub(crate) mod projects;
pub(crate) mod providers;
pub(crate) mod repository;
pub(crate) mod reverts;
pub(crate) mod sessions;
pub(crate) mod settings;
pub(crate) mod tree;
pub(crate) mod wait;
