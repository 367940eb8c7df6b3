//! The HTTP surface of a gateway: the service's own routes and the dialect of stock OpenCode clients.
//!
//! ```text
//! request ─scope─▶ authenticate ─▶ handler: prove, parse, do, answer ──▶ store
//!                                     │ admit, interrupt                    │
//!                                     └──▶ waker ──hint──▶ worker           └─▶ follow hub ─SSE─▶ clients
//!
//! rows ────────────────────▶ view ─▶ answers          surface ─▶ act ─▶ state ─▶ follow ─▶ render ─▶ fold ─▶ view
//! events ─▶ fold ─▶ changes ─▶ render ─▶ stock events       (who may use whom; tests/api/layers.rs)
//! ```
//!
//! Invariants: no handler reads a row without the tenant that its key has proved; a hint is sent after its commit and
//! may be lost; a public body never carries an internal cause. The gateway is stateless: it can lose its caches
//! (holders, followed sessions, keys) at any moment, which costs only latency.
//! Absent on purpose: SQL (`store`), turns (`session`), binding and shutdown (`gateway`).

mod act;
mod changes;
mod default_model;
mod error;
mod fold;
mod follow;
mod homes;
mod kept;
mod origin;
mod principal;
mod render;
mod settings;
mod shares;
mod site;
mod spools;
mod state;
mod summaries;
mod surface;
mod table;
mod text;
mod view;
mod wake;

pub use act::differing_messages;
pub use default_model::DefaultModel;
pub use origin::{Origin, OriginError, Origins};
pub use settings::{ApiSettings, ModelList};
pub use site::{PublicUrl, PublicUrlError, Site};
pub use spools::{DiskRoom, LEAST_SPOOL_BYTES, SpoolSettings};
pub use state::{ApiParts, ApiState};
pub use table::{openapi, policies, recent_routes, route_table, router, stock_openapi};
