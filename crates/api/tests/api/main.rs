//! The HTTP surface through its router, on a real Postgres, with a drain that writes like a worker.
//!
//! Tests need several threads: dropping the database blocks the test's own thread, and a connection that is just
//! being opened must still answer the server, or both wait for a minute.

mod access;
mod archive;
mod asks;
mod authors;
mod beliefs;
mod clients;
mod context;
mod contract;
mod drain;
mod feeds;
mod files;
mod floods;
mod follow;
mod forks;
mod held;
#[path = "../../../../tests/third-party/idp.rs"]
mod idp;
mod ignored;
mod import;
mod inbox;
mod keys;
mod layers;
mod links;
mod lists;
mod logins;
mod models;
mod moves;
mod native;
#[path = "../../../../tests/third-party/npm.rs"]
mod npm;
mod openapi;
mod outputs;
mod people;
mod permission;
mod places;
mod providers;
mod recent;
mod recovery;
mod released;
mod reverts;
mod routes;
mod sent;
mod settings;
mod sso;
mod stock;
mod tree;
mod usage;
#[path = "../../../../tests/third-party/visit.rs"]
mod visit;
mod world;
