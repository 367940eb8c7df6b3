//! Sign-in at an organisation's identity provider by OpenID Connect: authorization code, PKCE, state and nonce.
//!
//! ```text
//! Connection ─begin─▶ Attempt, address ─browser─▶ Return ─finish─▶ SignIn (claims, algorithm, clock)
//!                                                                     └─ Rules::admit ─▶ Admission (role, why) or no
//! ```
//! Pure: [`Issuer`], [`verify`], [`Claims`], [`Rules`], [`own_page`]. With I/O: [`Providers`], which asks providers
//! through the one outbound client and keeps their configuration and keys.
//!
//! Invariants: a token is believed only with a signature of one of four asymmetric algorithms, by a key of the
//! connection's own issuer; nothing in a token's header names a key's address. An e-mail address is shown and may be
//! filtered by; it identifies nobody. No mapping makes an owner: [`MappedRole`] has none.
//!
//! Absent on purpose: who is which user (`store`), the keeping of attempts, cookies (`api`), sealing (`credentials`).

mod algorithm;
mod answer;
mod claims;
mod error;
mod flow;
mod http;
mod issuer;
mod page;
mod provider;
mod rules;
mod twin;
mod verify;

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use claims::{Claims, Groups, Person};
pub use error::OidcError;
pub use flow::{Attempt, Connection, Return, SignIn, random_text};
pub use issuer::{Issuer, IssuerRefused};
pub use page::own_page;
pub use provider::{Keys, Providers};
pub use rules::{Admission, MappedRole, NotAdmitted, Rules, UnknownRole, Why};
pub use verify::{Expected, SKEW_MS, TokenRefused, Verified, verify};
