//! The shapes in which sessions and messages are shown: `{ info, parts }`, as stock clients expect. One row gives one
//! shape, whether it was read or folded.

mod agent;
mod ask;
mod call;
mod files;
mod message;
mod project;
mod reference;
mod repository;
mod second;
mod session;
mod stock;
mod stock_tool;
mod todo;
mod tokens;
mod usage;

pub(crate) use agent::{agents, second_agents};
pub(crate) use ask::{AskView, is_permission, second_ask, stock_ask};
pub(crate) use files::{AddedSteps, DiffView, FileView, SummaryView};
pub(crate) use message::{
    MessageInfo, MessageView, PartBody, PartView, SessionContext, error_view, message, part,
};
pub(crate) use project::ProjectView;
pub(crate) use reference::{SelectedLines, refer_to_file};
pub(crate) use repository::RepositoryView;
pub(crate) use second::second_session;
pub(crate) use session::SessionView;
pub(crate) use stock::{all_as_stock, as_stock, part_as_stock};
pub(crate) use todo::{stock_todos, todos_of};
pub(crate) use tokens::{TokensView, Usd, usd};
pub(crate) use usage::{UsageView, csv};
