//! Session Drains: from an admitted prompt to a settled answer, one durable transition at a time.
//!
//! ```text
//! claim ─▶ recover what an earlier owner left ─▶ boundary ─▶ provider call ─▶ tools ─▶ settlement ─┐
//!                                                   ▲  promote · context · intent                  │
//!                                                   └──────────────── continuation ◀───────────────┘
//! ```
//!
//! Invariants: everything that influences the model is a committed row before it is in a request; every write proves
//! the claim; no body of a tool runs before its intent is committed as *started* (I8); no transaction is open across
//! a provider call or a tool. The decisions are in `session-rules`. This is the shell around them: it streams, runs
//! tools, observes and writes.
//! Absent on purpose: HTTP, placement, SQL, decisions.

mod ahead;
mod asks;
mod compaction;
mod control;
mod drain;
mod ending;
mod files;
mod folds;
mod live;
mod location_settings;
mod log;
mod models;
mod observe;
mod outputs;
mod patience;
mod providers;
mod rate;
mod recover;
mod runtime;
mod settings;
mod spending;
mod stage;
mod title;
mod toolbox;
mod traced;
mod turn;
mod watched_call;
mod workspace;

pub use control::{Crowd, DrainControl, DrainHandle, drain_control};
pub use domain::{Prices, Rates};
pub use drain::{DrainExit, drain};
pub use files::{Files, FilesCounts, FilesError, FilesOptions, SnapshotSettings};
pub use folds::FoldBudget;
pub use models::{ConfiguredModels, ProviderSetup};
pub use observe::ObservedAt;
pub use patience::POSTGRES_PATIENCE;
pub use providers::ProviderHub;
pub use runtime::{Runtime, StoredComponents};
pub use session_rules::{Agent, Agents, CompactionSettings, ModelFacts, RuleSettings};
pub use settings::DrainSettings;
pub use spending::Spending;
pub use workspace::Workspace;
