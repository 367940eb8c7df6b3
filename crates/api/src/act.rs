//! The verbs that handlers share, whatever the dialect of the request.

mod admit;
mod announce;
mod asks;
mod attachment;
mod blobs;
mod change;
mod checkout;
mod choice;
mod command;
mod compaction;
mod control;
mod diff;
mod effective;
mod explain;
mod export;
mod fold_check;
mod fork;
mod import;
mod interrupt;
mod login;
mod messages;
mod metadata;
mod models;
mod moves;
mod parked;
mod resolve;
mod retry;
mod revoked;
mod sent;
mod sessions;
pub(crate) mod sso;
mod transfer;

pub(crate) use admit::{AdmitRequest, admit};
pub(crate) use announce::announce;
pub(crate) use asks::{AnswerRequest, Reply, answer};
pub(crate) use blobs::missing;
pub(crate) use change::{ChangeRequest, change};
pub(crate) use checkout::{is_checkout, local_checkout};
pub(crate) use command::{CommandRequest, InitRequest, prompt_of};
pub(crate) use compaction::{CompactRequest, admit_compaction};
pub(crate) use control::Asked;
pub(crate) use diff::{DiffQuery, diff};
pub(crate) use effective::{settings_in, settings_of};
pub(crate) use explain::{Explained, explain, unproven};
pub(crate) use export::export;
pub use fold_check::differing_messages;
pub(crate) use fork::{ForkRequest, forked};
pub(crate) use import::{FilesFate, ImportQuery, import};
pub(crate) use interrupt::{AbortRequest, InterruptedView, aborted, interrupt};
pub(crate) use login::{
    Begun, Visit, by_code as begin_by_code, by_key as begin_by_key, by_link as begin_by_link,
    refuse_confined,
};
pub(crate) use messages::{context, one, prompt_row, stock_transcript, transcript};
pub(crate) use models::{
    Basis, ShownCatalog, ShownProvider, Source, shown_from, shown_models, shown_with,
};
pub(crate) use moves::{MoveRequest, asked};
pub(crate) use parked::WaitStep;
pub(crate) use resolve::{Workspace, location, location_of, workspace};
pub(crate) use revoked::stop_revoked;
pub(crate) use sent::{HereRequest, HereView, UploadView, here, location_of_sent, store_upload};
pub(crate) use sessions::{
    NewSessionRequest, create, delete_session, home, read_session_rules, relearn,
};
