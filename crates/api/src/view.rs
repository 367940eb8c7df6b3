//! The shapes in which sessions and messages are shown: `{ info, parts }`, as stock clients know them.

mod call;
mod draft;
mod files;
mod message;
mod session;
mod tokens;

pub(crate) use draft::{Draft, called_row, settle};
pub(crate) use files::{DiffView, FileView, SummaryView};
pub(crate) use message::{
    MessageInfo, MessageView, PartBody, PartView, SessionContext, error_view, message,
};
pub(crate) use session::{SessionView, TimeView};
pub(crate) use tokens::{TokensView, Usd};
