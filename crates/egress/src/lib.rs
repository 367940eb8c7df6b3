//! The only way out: every request to an address that an organisation influences goes through this crate.
//!
//! ```text
//! URL ─Rules::check→ Open ──────────────────────────────────▶ connection
//!        │           Checked ─Lookup, once→ every address ─▶ connection to exactly those
//!        └ Refused             └ Refused
//! ```
//! Invariant: a connection made for a tenant goes to a checked address, and no name is looked up between the
//! check and the connection. A redirect is another request and is checked like the first.
//!
//! [`Exit`] is the same way out for commands in a sandbox, as a proxy that they speak to.
//!
//! Absent on purpose: permissions (the API's business), credentials, retries.

mod address;
mod client;
mod error;
mod exit;
mod fetch;
mod lookup;
mod rules;

pub use address::is_public;
pub use client::{Egress, EgressOptions, Transport};
pub use error::{EgressError, Refused, SetupError};
pub use exit::{Attempt, Exit, ExitBounds, Passage, Record};
pub use fetch::{FetchLimits, Fetched, Following, JudgeRedirect};
pub use lookup::{Lookup, SystemLookup};
pub use rules::{AllowedHost, Hosts, InvalidAllowedHost, Rules, Verdict};
