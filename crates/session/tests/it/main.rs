//! Session Drains against a real Postgres and the simulated model over real HTTP.
//!
//! Every scenario ends with [`world::World::check`]: the oracle's invariants hold, projections are rebuilt
//! byte for byte, and each request that the model saw is rebuilt from rows (I9).

#![expect(clippy::wildcard_enum_match_arm, reason = "a test picks the events that it is about")]
#![expect(clippy::unwrap_used, reason = "a helper's panic fails its test as well")]

mod agents;
mod ask_attacks;
mod ask_upgrades;
mod asks;
mod collected;
mod commits;
mod compaction;
mod compaction_failures;
mod context;
mod copies;
mod corpus;
mod credentials;
mod crowd;
mod failures;
mod fencing;
mod files;
mod hosted;
mod inputs;
mod instructions;
mod interrupts;
mod levels;
mod limits;
mod live_output;
mod moves;
mod permission;
mod protocols;
mod rates;
mod recovery;
mod refused_state;
mod reverts;
mod scenarios;
mod scenarios_compaction;
mod scenarios_forks;
mod scenarios_moves;
mod scenarios_resume;
mod scenarios_turns;
mod settings;
mod silence;
mod skills;
mod spans;
mod spending;
mod stalls;
mod text;
mod titles;
mod tools;
mod turns;
mod unsaved;
mod unsummarised;
mod variants;
mod world;
