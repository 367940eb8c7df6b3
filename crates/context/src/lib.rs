//! System Context: what a model is told about where it works, and how it is told of changes.
//!
//! ```text
//! producers ─Registry→ SystemContext ─initialize→ Baseline System Context + Context Snapshot
//!  (at the same time)   (stable order) ├reconcile with the snapshot→ unchanged | updated
//!                                      │                            | replacement ready | replacement blocked
//!                                      └replace→ the baseline of another epoch | blocked
//! ```
//!
//! A source is looked at once, before a decision; the decision is pure, and may be made twice. Its value is typed
//! where it is made and rendered ([`ContextSource`]), and hidden from there on.
//!
//! Invariant: pure. The same observations give the same bytes, in the order in which they were combined.
//! Absent on purpose: I/O (the `session` crate observes), and when an epoch starts (the `session-rules` crate).

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
