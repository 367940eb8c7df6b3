//! System Context: the facts about its surroundings that a model receives, and the updates when they change.
//!
//! ```text
//! producers ─Registry→ SystemContext ─initialize→ Baseline System Context + Context Snapshot
//!  (at the same time)   (stable order) ├reconcile with the snapshot→ unchanged | updated
//!                                      │                            | replacement ready | replacement blocked
//!                                      └replace→ the baseline of another epoch | blocked
//! ```
//!
//! Each source is read once, before a decision. The decision is pure and may be repeated. The source's code
//! makes and renders its typed value ([`ContextSource`]); other code does not see the type.
//!
//! Invariant: pure. The same observations in the same order give the same bytes.
//! Absent on purpose: I/O (the `session` crate observes), and the start of epochs (the `session-rules`
//! crate).

mod algebra;
mod date;
mod entry;
mod environment;
mod instructions;
mod key;
mod registry;
mod skills;
mod snapshot;
mod source;

pub use algebra::{Blocked, DuplicateKey, Initialized, Reconciled, SystemContext};
pub use date::{DATE_KEY, date};
pub use entry::{MAX_ENTRIES, MAX_ENTRY_BYTES, MAX_ENTRY_KEY_BYTES, entries, is_entry_key};
pub use environment::{ENVIRONMENT_KEY, EnvironmentFacts, environment};
pub use instructions::{
    INSTRUCTIONS_KEY, InstructionFile, MAX_FILE_BYTES, MAX_FILES, MAX_TOTAL_BYTES, NESTED_KEY,
    instructions, instructions_unavailable, nested_instructions, nested_unavailable,
};
pub use key::{InvalidKey, SourceKey};
pub use registry::{Producer, RegisterError, Registration, Registry};
pub use skills::{
    InvalidSkill, MAX_SKILL_DESCRIPTION_CHARS, MAX_SKILL_NAME_CHARS, MAX_SKILLS, SKILLS_KEY, Skill,
    skill_guidance,
};
pub use snapshot::{ContextSnapshot, SourceState};
pub use source::{ContextSource, Loaded};
