//! The verbs that handlers share, whatever the dialect of the request.

mod admit;
mod announce;
mod blobs;
mod choice;
mod compaction;
mod control;
mod diff;
mod fork;
mod interrupt;
mod messages;
mod models;
mod moves;
mod resolve;
mod retry;
mod sessions;

pub(crate) use admit::{AdmitRequest, admit};
pub(crate) use announce::announce;
pub(crate) use blobs::missing;
pub(crate) use compaction::{CompactRequest, admit_compaction};
pub(crate) use control::Asked;
pub(crate) use diff::{DiffQuery, diff};
pub(crate) use fork::{ForkRequest, forked};
pub(crate) use interrupt::{AbortRequest, InterruptedView, aborted, interrupt};
pub(crate) use messages::{context, one, prompt_row, transcript};
pub(crate) use models::{ShownCatalog, ShownProvider, Source, shown_models, shown_with};
pub(crate) use moves::{MoveRequest, asked};
pub(crate) use resolve::{Workspace, location, workspace};
pub(crate) use sessions::{
    ChangeRequest, NewSessionRequest, create, delete_session, home, relearn, rename,
};
