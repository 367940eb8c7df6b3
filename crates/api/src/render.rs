//! Shows changes of a session to stock clients. Pure, but for the ids of events.

mod stock;
mod stock_event;

pub(crate) use stock::{
    FilesOfAnswer, Occasion, StockFacts, changed_files, deleted, deleted_unseen, events, files,
};
pub(crate) use stock_event::{StockEvent, StockKind, asked, event, failed, toast};
