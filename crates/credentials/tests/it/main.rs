//! Credentials against a real Postgres, an independent OAuth server, and one that misbehaves like some
//! providers.
//!
//! ```text
//! world      a database, an organisation, a clock that tests move, and processes that share them
//! oidc       npm's oidc-provider and a browser for it
//! accounts   our own server: it verifies what service accounts sign
//! quirks     our own server: errors with the status 200, a second exchange, failures
//! trials     keys and addresses whose trial nobody finished
//! ```

mod accounts;
mod browser;
mod hidden;
mod keys;
mod oidc;
mod quirks;
mod server;
mod trials;
mod world;
