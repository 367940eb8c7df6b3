//! Who is asking: API keys, how a request carries one, and whose it is.
//!
//! `headers, query ─read─▶ key ─hash─▶ cache ─miss─▶ store ─▶ Access (organisation, key, scopes)`
//!
//! Invariants: a key is stored and cached only as its SHA-256; a revoked or expired key stops working
//! within 5 s; nothing here logs a key. Absent on purpose: people (OIDC) and what a scope allows on a
//! route, which `api` decides.

mod access;
mod authenticator;
mod credential;
mod key;

pub use access::{Access, Scope};
pub use authenticator::{AuthError, Authenticator};
pub use credential::{CredentialError, read_credential};
pub use key::{
    BootstrapKeyError, KeyFormError, MIN_BOOTSTRAP_CHARS, bootstrap_key, check_form, generate,
    generate_key, hash,
};
