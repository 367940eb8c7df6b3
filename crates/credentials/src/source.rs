//! The tokens of a sign-in. One process of the cluster refreshes them in time.
//!
//! ```text
//! token ─valid?─▶ hand it out
//!   │ no
//!   ▼ look at the row ─newer version?─▶ take that
//!   │ same
//!   ▼ take the lease ─taken─▶ wait 200 ms, look again          (30 s at most)
//!   │ ours
//!   ▼ ask the provider ─▶ write version + 1
//! ```
//!
//! A rotating refresh token works once. The task that uses it therefore runs to the end and stores the
//! result, even if its caller leaves. If the process dies between the provider's answer and the write, the
//! grant is lost and the person has to sign in again.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{OrgId, TimestampMs};
use llm_client::{LlmError, Secret, TokenSource};
use llm_protocol::{Delivery, ErrorReason};
use store::{CredentialKind, Renewed, SealedCredential, StoreError};

use crate::binding::Binding;
use crate::envelope::{DataKey, Row};
use crate::flow::{FlowError, OAuthClient};
use crate::lost::unreadable;
use crate::material::{Material, Tokens};
use crate::setup::Setups;
use crate::vault::Vault;
use crate::{CredentialsError, MAX_REFRESH};

/// The remaining lifetime below which a token is refreshed before use, in milliseconds.
pub(crate) const MARGIN_MS: TimestampMs = 60_000;
/// The interval between looks at a row that another process refreshes.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// The most attempts to store a rotated token, within the lease: a token that is not stored is lost.
const WRITES: u32 = 5;

/// The tokens of one credential. Cheap to clone.
#[derive(Clone)]
pub(crate) struct OAuthSource {
    shared: Arc<Shared>,
}

struct Shared {
    vault: Vault,
    setups: Setups,
    org: OrgId,
    id: String,
    provider: String,
    held: Mutex<Held>,
    /// Lets one task of this process look and refresh at a time. Holds the last result and its time on the
    /// monotonic clock.
    turn: tokio::sync::Mutex<Option<(Duration, Result<Secret, LlmError>)>>,
}

struct Held {
    version: i64,
    tokens: Tokens,
    binding: Binding,
    /// The provider's API answered 401 to it.
    refused: bool,
    /// The reason why the grant is over.
    fault: Option<String>,
}

impl Held {
    fn usable(&self, now: TimestampMs) -> Option<Secret> {
        let lasts = self.tokens.bearer_expires_ms().is_none_or(|end| end - now > MARGIN_MS);
        (lasts && !self.refused && self.fault.is_none()).then(|| self.tokens.bearer().clone())
    }
}

impl OAuthSource {
    /// # Errors
    /// The row cannot be opened.
    pub(crate) fn new(
        vault: Vault,
        setups: Setups,
        org: OrgId,
        stored: &SealedCredential,
    ) -> Result<Self, CredentialsError> {
        let held = opened(&vault, org, stored)?;
        let (id, provider) = (stored.row.id.clone(), stored.row.provider.clone());
        let (held, turn) = (Mutex::new(held), tokio::sync::Mutex::default());
        Ok(Self { shared: Arc::new(Shared { vault, setups, org, id, provider, held, turn }) })
    }

    /// Takes over a row that someone has read, if it is newer.
    pub(crate) fn see(&self, stored: &SealedCredential) -> Result<(), CredentialsError> {
        let (version, fault) = (stored.row.version, &stored.row.fault);
        {
            let mut held = self.shared.held();
            if held.version >= version {
                if held.version == version && held.fault.is_none() {
                    held.fault.clone_from(fault);
                }
                return Ok(());
            }
        }
        let newer = opened(&self.shared.vault, self.shared.org, stored)?;
        let mut held = self.shared.held();
        if held.version < newer.version {
            *held = newer;
        }
        Ok(())
    }

    /// Returns the binding of its tokens.
    pub(crate) fn binding(&self) -> Binding {
        self.shared.held().binding.clone()
    }

    /// Returns whether anyone except the caller holds it.
    pub(crate) fn is_used(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    async fn renewed(&self) -> Result<Secret, LlmError> {
        let clock = &self.shared.vault.clock;
        let arrived = clock.monotonic();
        let mut last = self.shared.turn.lock().await;
        // A task that waited during a refresh takes its result; refreshing again would double the wait.
        if let Some((_, answer)) = last.as_ref().filter(|(at, _)| *at > arrived) {
            return answer.clone();
        }
        let answer = self.renew().await;
        *last = Some((clock.monotonic(), answer.clone()));
        answer
    }

    /// Renews the token. The caller holds the turn.
    async fn renew(&self) -> Result<Secret, LlmError> {
        let shared = &self.shared;
        let until = shared.vault.clock.monotonic() + MAX_REFRESH;
        loop {
            let stored = shared.vault.store.credential(shared.org, shared.id.clone()).await;
            let stored = stored.map_err(|error| {
                if matches!(error, StoreError::NotFound) {
                    refused("the credential was removed: add another")
                } else {
                    unavailable(&error.to_string())
                }
            })?;
            let seen = self.see(&stored).map_err(unreadable(&stored.row));
            seen.map_err(|error| refused(&error.to_string()))?;
            let (version, tokens) = {
                let held = shared.held();
                if let Some(token) = held.usable(shared.now()) {
                    return Ok(token);
                }
                if let Some(fault) = &held.fault {
                    return Err(refused(fault));
                }
                (held.version, held.tokens.clone())
            };
            let (id, lease) = (shared.id.clone(), MAX_REFRESH);
            let taken = shared.vault.store.take_refresh(shared.org, id, version, lease).await;
            if taken.map_err(|error| unavailable(&error.to_string()))? {
                let shared = shared.clone();
                // Detached, so that it ends even if the caller leaves: the refresh token may work only once.
                return tasks::detached(async move { shared.refresh(version, tokens).await }).await;
            }
            if shared.vault.clock.monotonic() >= until {
                return Err(unavailable("another process has not refreshed the sign-in in time"));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Held> {
        // No foreign code runs under this lock.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> TimestampMs {
        self.vault.clock.now_ms()
    }

    /// Refreshes the tokens. The caller holds the lease for `version`.
    async fn refresh(&self, version: i64, before: Tokens) -> Result<Secret, LlmError> {
        // Before the provider is contacted: tokens that cannot be stored would be lost.
        let key = match self.vault.data_key(self.org).await {
            Ok(key) => key,
            Err(CredentialsError::Store(error)) => {
                return self.give_up(version, &unavailable(&error.to_string())).await;
            }
            Err(error) => return self.give_up(version, &refused(&error.to_string())).await,
        };
        let client = match self.setups.client(self.org, &self.provider).await {
            Ok(client) => client,
            Err(error) => return self.give_up(version, &refused(&error.to_string())).await,
        };
        // Tokens go only to the host that gave them, even if the settings have changed.
        let binding = self.held().binding.clone();
        if let Err(other) = binding.allows_sign_in(&client.settings) {
            let fault = format!("the sign-in cannot be refreshed: {other}; sign in again");
            return self.give_up(version, &refused(&fault)).await;
        }
        let (tokens, error) = match renew(&client, &before, self.now()).await {
            Ok(renewed) => renewed,
            Err(error) if error.ends_the_grant() => return self.end(version, &error).await,
            Err(error) => return self.give_up(version, &of(&error)).await,
        };
        self.keep(version, &key, tokens, binding).await?;
        if let Some(error) = error {
            if error.ends_the_grant() {
                return self.end(version + 1, &error).await;
            }
            return Err(of(&error));
        }
        tracing::debug!(credential = %self.id, provider = %self.provider, "refreshed a sign-in");
        Ok(self.held().tokens.bearer().clone())
    }

    /// Stores the provider's tokens as the version after `version`, and holds them.
    async fn keep(
        &self,
        version: i64,
        key: &DataKey,
        tokens: Tokens,
        binding: Binding,
    ) -> Result<(), LlmError> {
        let material = Material::OAuth(tokens.clone());
        let row = Row { org: self.org, id: &self.id, version: version + 1 };
        let sealed = key.seal(&row, &material.to_bytes(&binding));
        let (hint, expires_ms) = (material.hint(), material.expires_ms());
        let mut tried = 0;
        let kept = loop {
            let (hint, sealed) = (hint.clone(), sealed.clone());
            let renewed = Renewed { from: version, sealed, hint, expires_ms };
            let (store, id, now) = (&self.vault.store, self.id.clone(), self.now());
            tried += 1;
            match store.renew_credential(self.org, id, renewed, now).await {
                Ok(kept) => break kept,
                Err(error) if tried >= WRITES => return Err(unavailable(&error.to_string())),
                Err(error) => {
                    tracing::warn!(credential = %self.id, %error, "a refreshed sign-in could not be written yet");
                    tokio::time::sleep(LOOK_AGAIN * tried).await;
                }
            }
        };
        if !kept {
            // Someone signed in again or removed the credential. Their change wins.
            return Err(unavailable("the credential was changed while it was refreshed"));
        }
        let version = version + 1;
        *self.held() = Held { version, tokens, binding, refused: false, fault: None };
        Ok(())
    }

    /// Marks the grant as over for all processes.
    async fn end<T>(&self, version: i64, error: &FlowError) -> Result<T, LlmError> {
        let fault = format!("the sign-in is over, sign in again: {}", error.message());
        self.held().fault = Some(fault.clone());
        let (store, id) = (&self.vault.store, self.id.clone());
        let ended = store.end_refresh(self.org, id, version, Some(fault.clone()), self.now()).await;
        ended.map_err(|error| unavailable(&error.to_string()))?;
        tracing::warn!(credential = %self.id, provider = %self.provider, "a sign-in is over");
        Err(refused(&fault))
    }

    /// Ends this refresh without new tokens, so that another may begin. A token that has not expired is still
    /// returned.
    async fn give_up(&self, version: i64, error: &LlmError) -> Result<Secret, LlmError> {
        let (store, id) = (&self.vault.store, self.id.clone());
        let ended = store.end_refresh(self.org, id, version, None, self.now()).await;
        ended.map_err(|error| unavailable(&error.to_string()))?;
        let held = self.held();
        let lasts = held.tokens.bearer_expires_ms().is_none_or(|end| end > self.now());
        if lasts && !held.refused { Ok(held.tokens.bearer().clone()) } else { Err(error.clone()) }
    }
}

#[async_trait::async_trait]
impl TokenSource for OAuthSource {
    async fn token(&self) -> Result<Secret, LlmError> {
        let held = self.shared.held().usable(self.shared.now());
        match held {
            Some(token) => Ok(token),
            None => self.renewed().await,
        }
    }

    fn refused(&self, token: &Secret) {
        let mut held = self.shared.held();
        if held.tokens.bearer() == token {
            held.refused = true;
        }
    }
}

impl fmt::Debug for OAuthSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthSource").field("credential", &self.shared.id).finish_non_exhaustive()
    }
}

/// Gets new tokens for old ones. Also returns the error if only some of them could be got.
async fn renew(
    client: &OAuthClient,
    before: &Tokens,
    now: TimestampMs,
) -> Result<(Tokens, Option<FlowError>), FlowError> {
    let exchanges = client.settings.exchange.is_some();
    let is_over = before.expires_ms.is_some_and(|end| end - now <= MARGIN_MS);
    let tokens = match &before.refresh {
        Some(refresh) if is_over || !exchanges => Tokens {
            session: before.session.clone(), // until the exchange below
            ..client.refresh(refresh, now).await?
        },
        None if !exchanges => {
            let words = "its token has ended, and it gave none to refresh it with".to_owned();
            return Err(FlowError::Refused { code: "invalid_grant".to_owned(), words });
        }
        Some(_) | None => before.clone(),
    };
    match client.exchange(tokens.clone(), now).await {
        Ok(tokens) => Ok((tokens, None)),
        Err(error) if tokens == *before => Err(error),
        Err(error) => Ok((tokens, Some(error))),
    }
}

fn opened(vault: &Vault, org: OrgId, stored: &SealedCredential) -> Result<Held, CredentialsError> {
    let row = Row { org, id: &stored.row.id, version: stored.row.version };
    let bytes = vault.open_with(&stored.key, &row, &stored.sealed)?;
    let (Material::OAuth(tokens), binding) = Material::from_bytes(CredentialKind::OAuth, &bytes)?
    else {
        return Err(crate::EnvelopeError::Refused.into());
    };
    let fault = stored.row.fault.clone();
    Ok(Held { version: stored.row.version, tokens, binding, refused: false, fault })
}

/// Makes an error that only a person can fix.
fn refused(message: &str) -> LlmError {
    LlmError::unsent(ErrorReason::Authentication, message)
}

/// Makes an error that a retry may fix.
fn unavailable(message: &str) -> LlmError {
    LlmError::unsent(ErrorReason::Transport { delivery: Delivery::NotSent }, message)
}

/// Converts an error for turns.
pub(crate) fn of(error: &FlowError) -> LlmError {
    match error {
        FlowError::Unavailable(_) => unavailable(&error.message()),
        FlowError::Refused { .. } | FlowError::Unusable(_) => refused(&error.message()),
    }
}
