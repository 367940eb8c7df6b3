//! Credentials of organisations and people at model providers: API keys, access keys, and sign-ins that are
//! kept fresh.
//!
//! ```text
//! people ─▶ add, sign in ─seal─▶ rows ◀─open─ auth ◀─ turns
//!                                  ▲            │ TokenSource
//!                                  └──refresh───┘ one process of the cluster at a time
//! ```
//!
//! Invariants: a secret exists only in memory, in a request to its provider, and sealed in its row. No type
//! that holds one can be displayed or serialised, and `Debug` hides it. Only one process of the cluster uses
//! a refresh token at a time, and it holds no transaction open meanwhile.
//! Absent on purpose: endpoints and client ids of any provider (they are an organisation's settings), SQL
//! (`store`), HTTP shapes (`api`), and the choice of a provider (`catalog`, `session`).

mod binding;
mod credentials;
mod envelope;
mod error;
mod flow;
mod hidden;
mod lost;
mod material;
mod service_account;
mod settings;
mod setup;
mod sign_in;
mod source;
mod stored;
mod trial;
mod vault;

use std::time::Duration;

pub use binding::{Binding, OtherOrigin};
pub use credentials::{
    ALL_PROVIDERS, Credentials, CredentialsParts, Found, NewSecret, SecretChange,
};
pub use envelope::{EnvelopeError, MasterKeys};
pub use error::{CredentialsError, OTHER_HOST};
pub use hidden::{HIDDEN, hide};
pub use lost::{SecretsState, StoredSecret};
pub use material::{Material, SessionToken, Tokens};
pub use service_account::ServiceAccount;
pub use settings::{
    ClientAuth, ExchangeSettings, OAuthSettings, ProviderSettings, ProviderTrial, is_of_internet,
};
pub use setup::{ClientSecret, ProviderSetup};
pub use sign_in::{NewSignInRequest, NextStep, SignInProgress, SignInState};
pub use store::{CredentialKind, CredentialRow, SignInMethod};
pub use stored::OpenedSettings;
pub use trial::ON_TRIAL;
pub use vault::Rewrapped;

/// The longest time that one process has the lease for a refresh or a poll.
const MAX_REFRESH: Duration = Duration::from_secs(30);
