//! The stream of an organisation: all its sessions in one, as stock events.

mod feed;
mod frame;
mod held;
mod told;
mod untold;

pub(crate) use feed::Feeds;
#[cfg(test)]
pub(crate) use frame::FrameSource;
pub(crate) use frame::StockFrame;
pub(crate) use held::HoldGuard;
