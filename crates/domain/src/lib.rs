//! The vocabulary of the system: ids, tokens, prompts and the durable events of a session.
//!
//! ```text
//! ids ─┐
//! tokens ─┼─▶ events ──▶ what the store writes, what history is folded from
//! prompts ─┘
//! ```
//!
//! Invariant: nothing here does I/O or reads a clock; time comes in through [`Clock`].
//! Absent on purpose: SQL types (the store converts), HTTP shapes (`api`), wire formats (`llm-protocol`).

mod ask_id;
mod author;
mod clock;
mod drain_end;
mod error_code;
mod event;
mod feature;
mod id;
mod need;
mod permitted;
mod price;
mod projected;
mod prompt;
mod reference;
mod token;
mod tool;
mod tool_name;
mod tool_rule;
mod tree;
mod word;

#[doc(hidden)]
pub use ::schemars; // for `words!`

pub use ask_id::AskId;
pub use author::Author;
pub use clock::{Clock, SystemClock, TimestampMs};
pub use drain_end::{DrainEnd, Taken};
pub use error_code::ErrorCode;
pub use event::{
    Answer, Ask, AttemptEnded, AttemptOutcome, AttemptStarted, CompactionEnded, CompactionReason,
    CompactionReminded, CompactionStarted, ComponentList, ContextUpdated, Control, ControlAdmitted,
    ControlDelivered, DeliveryChanged, DrainEnded, DrainOutcome, EntryRemoved, EntrySet,
    EpochReason, EpochStarted, FileChange, FileStatus, InputCancelled, InterruptRequested,
    InterruptTarget, LeftFile, LeftReason, NoticeKind, NoticeRecorded, PromptAdmitted,
    PromptPromoted, Question, QuestionOption, RecordedEvent, ReplyPart, RetryScheduled,
    RevertCleared, RevertCommitted, RevertPaths, RevertStaged, RevertStaging, RevertedTo,
    SessionArchived, SessionCreated, SessionDescribed, SessionError, SessionEvent, SessionForked,
    SessionMoved, SessionRenamed, SideOutcome, SummaryCut, SummaryScope, TextCheckpointed,
    TitleEnded, TitleStarted, TitledBy, ToolAnswered, ToolAsked, ToolCalled, ToolIntent,
    ToolSettled, ToolStarted, TurnOutcome, TurnReplied, TurnSettled, TurnStarted, TurnUsage,
    UnknownEvent, WakeRequested, WakeScope, WorkspaceRestored, WorkspaceSnapshotted,
    ends_with_written_call,
};
pub use feature::{Feature, FeatureLevel};
pub use id::{
    AlertId, AttemptId, CallId, CredentialId, EventId, IdError, IdMint, IdpId, KeyId, LocationId,
    LoginId, MessageId, OrgId, OutId, PartId, PermissionId, ProjectId, QuestionId, RepositoryId,
    ServiceId, SessionId, SignInId, Stamp, TurnId, UploadId, UserId,
};
pub use need::{Need, UNKNOWN_CHAR, UNKNOWN_TEXT};
pub use permitted::Permitted;
pub use price::{Estimate, PriceTier, Prices, Pricing, Rates};
pub use projected::{
    AskStatus, Finish, InputKind, InputStatus, MessageRole, PartKind, TurnKind, TurnStatus,
};
pub use prompt::{Delivery, ModelRef, PromptPart};
pub use reference::{LocationRef, SessionRef};
pub use token::{Claim, FencingToken, Generation, Incarnation, Seq, SessionIncarnation};
pub use tool::{ToolClass, ToolOutcomeKind, ToolState};
pub use tool_name::meant_tool;
pub use tool_rule::{RuleAction, SavedPermission, ToolRule, is_secret_path, rule_names};
pub use tree::{BadTree, SnapshotTree};
pub use word::{NewerWord, Stored, Word};
