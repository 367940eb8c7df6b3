//! Handlers. Each proves the permission, parses the request, calls one verb of `act` or the store, and answers.

pub(crate) mod native;
pub(crate) mod stock;

mod at;
mod blob;
pub(crate) mod dialect;
pub(crate) mod extract;
pub(crate) mod ignored;
mod limit;
mod listed;
pub(crate) mod paged;
mod redacted;
pub(crate) mod wall;

pub(crate) use dialect::Dialect;
pub(crate) use extract::{CanRead, Granted, MAX_BODY_BYTES};

/// Marks an answer whose body begins before its end is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trickle;

/// Marks the answer to a request that has ended its own credential: it is sent all the same.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parting;
