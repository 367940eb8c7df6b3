//! The one way out: every request to an address that an organisation had a say in goes through here.
//!
//! ```text
//! URL ─Rules::check→ Open ──────────────────────────────────▶ connection
//!        │           Checked ─Lookup, once→ every address ─▶ connection to exactly those
//!        └ Refused             └ Refused
//! ```
//! Invariant: a connection that is made for a tenant goes to an address that was checked, and no name is looked up
//! between the check and the connection. A redirect is another request: it is checked as the first was.
//!
//! Absent on purpose: who may ask (that is the API's business), credentials, retries.

mod address;
mod client;
mod error;
mod fetch;
mod lookup;
mod rules;

pub use address::is_public;
pub use client::{Egress, EgressOptions, Transport};
pub use error::{EgressError, Refused, SetupError};
pub use fetch::{FetchLimits, Fetched, Following};
pub use lookup::{Lookup, SystemLookup};
pub use rules::{AllowedHost, InvalidAllowedHost, Rules, Verdict};
