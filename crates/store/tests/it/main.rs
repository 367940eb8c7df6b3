//! The durable transitions against a real Postgres, with as many writers at once as there will be.
//!
//! ```text
//! world    a database, an organisation, Locations and sessions, and whole rows to compare
//! script   events of every kind, as a drain would write them; files has those of files and places
//! model    the simulation's model of the store, held to Postgres; mutants proves that this and corners find mistakes
//! ```

#![expect(clippy::wildcard_enum_match_arm, reason = "a test looks at the kinds it is about")]

mod admission;
mod archive;
mod batch;
mod blobs;
mod cancellation;
mod changes;
mod collection;
mod corners;
mod deletion;
mod deletion_pages;
mod doubled;
mod drain_end;
mod entries;
mod fair;
mod features;
mod fence;
mod files;
mod forks;
mod functions;
mod inbox;
mod incarnation;
mod interrupt;
mod lists;
mod locked;
mod look;
mod migrations;
mod model;
mod moves;
mod mutants;
mod network;
mod oracle;
mod pages;
mod pooler;
mod providers;
mod random;
mod reads;
mod rebuild;
mod resume;
mod reverts;
mod roles;
mod schema;
mod script;
mod second_wall;
mod settings;
mod tenancy;
mod tree;
mod uploads;
mod usage;
mod went_back;
mod words;
mod workspace;
mod workspaces;
mod world;
