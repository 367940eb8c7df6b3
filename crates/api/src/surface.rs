//! Handlers: what a request may do, its parts parsed, one verb of `act` or one call of the store, the answer in its shape.

pub(crate) mod native;
pub(crate) mod stock;

mod at;
mod dialect;
mod extract;
mod limit;
mod redacted;

pub(crate) use dialect::Dialect;
pub(crate) use extract::MAX_BODY_BYTES;
