//! The stream of an organisation: all its sessions in one, as stock events.

mod feed;
mod frame;
mod held;
mod told;
mod untold;

pub(crate) use feed::Feeds;
pub(crate) use frame::StockFrame;
pub(crate) use held::HoldGuard;
