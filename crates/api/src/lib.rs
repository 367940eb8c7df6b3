//! The HTTP surface of a gateway: the service's own routes and the dialect of stock OpenCode clients.
//!
//! ```text
//! request ─scope─▶ authenticate ─▶ handler: prove, parse, do, answer ──▶ store
//!                                     │ admit, interrupt                    │
//!                                     └──▶ waker ──hint──▶ worker           └─▶ follow hub ─SSE─▶ clients
//! ```
//!
//! Invariants: no handler reads a row without the tenant that its key has proved; a hint is sent after its
//! commit and may be lost; a public body never carries an internal cause. Stateless: what is kept here
//! (holders, followed sessions, keys) can be lost at any moment at the cost of latency.
//! Absent on purpose: SQL (`store`), turns (`session`), binding and shutdown (`gateway`).

mod dialect;
mod error;
mod extract;
mod follow;
mod homes;
mod models;
mod native;
mod redacted;
mod resolve;
mod route;
mod scope;
mod shares;
mod state;
mod stock;
mod view;
mod wake;
mod wall;

pub use models::ModelList;
pub use route::{route_table, router};
pub use state::{ApiParts, ApiSettings, ApiState};
