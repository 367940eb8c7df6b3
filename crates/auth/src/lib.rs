//! Authentication with API keys: reading a request's key, and finding its owner.
//!
//! `headers, query ─read─▶ key ─hash─▶ cache ─miss─▶ store ─▶ Access (organisation, key, scopes)`
//!
//! Invariants: a key is stored and cached only as its SHA-256. A revoked or expired key stops working within
//! 5 s. This crate never logs a key. Absent on purpose: people (OIDC) and the scopes of routes, which `api`
//! decides.

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
