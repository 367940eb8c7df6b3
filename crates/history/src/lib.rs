//! Folds a session's events into the history that a model sees, and into the bytes of a request.
//!
//! ```text
//! events ─fold→ History ─┐
//!                        ├─encode→ body ─sha256→ what the attempt's row holds
//! components ────────────┘
//! ```
//!
//! Invariant: a body is a function of events and components alone, so that the request of any attempt
//! can be rebuilt from rows (`opencode-cloud explain`). A drain and explain use the same fold.
//! Absent on purpose: I/O, clocks, projections.

mod accepted;
mod checkpoint_text;
mod components;
mod failed_summaries;
mod files;
mod fold;
mod open_turn;
mod provider_state;
mod rebuild;
mod revert;
mod side;
mod silence;
mod squeeze;
mod transcript;
mod view;
mod weight;

pub use checkpoint_text::{checkpoint_text, summary_text};
pub use components::{Components, ModelEntry, TOOLS, hash_hex};
pub use failed_summaries::FailedSummaries;
pub use files::Unsaved;
pub use fold::{EpochState, History, Mark, PendingControl, PendingInput};
pub use open_turn::{AskState, CallState, OpenTurn, Standing};
pub use rebuild::{RebuildError, rebuild_body};
pub use revert::{Reverting, Savepoint};
pub use side::{OpenCompaction, OpenTitle, Side};
pub use squeeze::{CIRCLES, Circle, Squeeze};
pub use transcript::transcript;
pub use view::{Conversation, View};
