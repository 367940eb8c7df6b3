//! Authentication: keys of people and services, logins in browsers, and the belief that either is good.
//!
//! ```text
//! headers ─read─▶ key or cookie ─hash─▶ belief ─lapsed─▶ store ─▶ Principal (organisation, actor, role, scopes)
//!                                        ▲ renewed every 2 s by one query for all in use
//! ```
//!
//! Invariants: of a key, cookie or link only the SHA-256 is stored and cached. A belief is a lease of 5 s from before
//! the query that brought it: past it nothing is served, so a revoked credential stops working within 5 s also at a
//! gateway that is cut off. This crate never logs a secret. Absent on purpose: which route has which need (`api`), and
//! the decision about it (`access`).

mod authenticator;
mod belief;
mod credential;
mod key;
mod recovery;
mod token;

pub use authenticator::{
    AuthError, Authenticator, COOKIE_AGE, CodeError, LinkError, PutOff, Recovered, Shown,
};
pub use belief::{BELIEVED_FOR, Belief, BeliefState, Believed, RECENT};
pub use credential::{CookieError, CredentialError, read_cookie, read_credential};
pub use key::{
    BootstrapKeyError, KeyForm, KeyFormError, MIN_BOOTSTRAP_CHARS, MadeKey, bootstrap_key,
    check_form, generate, generate_key, hash,
};
pub use recovery::{RECOVERY_CODES, RecoveryCode};
pub use token::{LINK_LIFE, LOGIN_LIFE, Token};
