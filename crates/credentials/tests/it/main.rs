//! Credentials against a real Postgres, a real OAuth server that nobody here wrote, and one that misbehaves as some
//! providers do.
//!
//! ```text
//! world      a database, an organisation, a clock that tests move, and processes that share them
//! oidc       npm's oidc-provider and a browser for it
//! quirks     our own server: errors with the status 200, a second exchange, failures
//! ```

mod browser;
mod keys;
mod oidc;
mod quirks;
mod server;
mod world;
