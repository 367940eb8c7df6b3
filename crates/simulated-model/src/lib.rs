//! The simulated model: a small deterministic program that speaks five protocols of model providers over real HTTP,
//! for people without a key, for tests and for benchmarks.
//!
//! `body ─protocol→ request → conversation ─(script | phrase → plan)→ draft → answer ─flow, protocol→ events`
//!
//! It is labelled as simulated wherever it appears: model id, owner, fingerprint, the header `x-simulated-model`, and
//! the text of its answers. The same body gives the same bytes, unless a script is spent in between or a cache holds
//! more: ids come from the request's hash, `created` is 0, a token is four bytes.
//! The crate's README describes what it understands and how to script it.
//!
//! Absent on purpose: authentication (keep it on loopback), TLS, HTTP/2, answers without a stream in the newer
//! protocols, and any memory of earlier requests except the log, the scripts, the prompts that a cache would hold,
//! and the calls made after signed reasoning.

mod answer;
mod aside;
mod cache;
mod complete;
mod conversation;
mod desk;
mod flow;
mod handle;
mod limits;
mod log;
mod memory;
mod phrase;
mod plan;
mod protocol;
mod request;
mod routes;
mod script;
mod server;
mod signature;

pub use answer::Usage;
pub use desk::{MAX_GATES, MAX_SCRIPTS, WaitingScript};
pub use handle::Handle;
pub use limits::{ALL_MODELS, MAX_LIMITED_MODELS, TokenLimits};
pub use log::{Counts, MAX_HASHES, Outcome, RequestRecord};
pub use script::{
    MAX_CHUNK_DELAY_MS, MAX_DELAY_MS, MAX_GATE_NAME_BYTES, Script, ScriptError, ScriptedCall,
};
pub use server::{Options, Running, SimulatedModel};

/// The id of the only model; requests may name any.
pub const MODEL: &str = "simulated";
