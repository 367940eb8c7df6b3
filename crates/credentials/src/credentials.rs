//! The operations on credentials, for people and for turns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use catalog::{Destination, Feed, OrgSettings};
use domain::{Clock, CredentialId, IdMint, OrgId, Stamp, TimestampMs};
use egress::Egress;
use llm_client::Auth;
use store::{
    CredentialChange, CredentialKind, CredentialRow, Kept, NewCredential, ProviderSetting, Renewed,
    Sealed, SealedCredential, Store,
};

use crate::binding::{Binding, sign_in_origins};
use crate::envelope::Row;
use crate::lost::unreadable;
use crate::material::Material;
use crate::service_account::{AccountSource, ServiceAccount};
use crate::settings::{OAuthSettings, ProviderSettings, check_address};
use crate::setup::{self, ClientSecret, ProviderSetup, Setups, oauth_of};
use crate::source::OAuthSource;
use crate::stored::{self, OpenedSettings};
use crate::vault::{Rewrapped, Vault};
use crate::{CredentialsError, MasterKeys};

/// The most sign-ins whose tokens a process holds. Beyond that, it drops those that no turn uses.
const MAX_SOURCES: usize = 10_000;
/// The most attempts to seal a secret again after concurrent changes.
const TRIES: u32 = 3;
const MAX_NAME_CHARS: usize = 128;

/// The credentials of organisations. Cheap to clone.
#[derive(Clone)]
pub struct Credentials {
    shared: Arc<Shared>,
}

struct Shared {
    vault: Vault,
    setups: Setups,
    sources: Mutex<HashMap<(OrgId, String), OAuthSource>>,
    accounts: Mutex<HashMap<(OrgId, String), AccountSource>>,
}

/// The parts that [`Credentials`] are built from.
pub struct CredentialsParts {
    /// The database.
    pub store: Store,
    /// The master keys. `None`: no secret can be stored or opened.
    pub keys: Option<MasterKeys>,
    /// The rules for addresses that organisations set, and the transport for sign-ins.
    pub egress: Egress,
    /// The catalog of providers. `None`: only the organisations' settings count.
    pub catalog: Option<Arc<Feed>>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// A secret to store.
#[derive(Debug, Clone)]
pub struct NewSecret {
    /// The owner: a user's name, or empty for the organisation.
    pub owner: String,
    /// The provider.
    pub provider: String,
    /// The display name.
    pub label: String,
    /// The secret.
    pub material: Material,
}

/// A change to a credential.
#[derive(Debug, Clone, Default)]
pub struct SecretChange {
    /// A new label.
    pub label: Option<String>,
    /// Turns use it.
    pub active: Option<bool>,
    /// A new secret of the same kind.
    pub material: Option<Material>,
}

/// The credential for a turn.
#[derive(Debug, Clone)]
pub struct Found {
    /// The credential's id.
    pub id: String,
    /// The owner; empty for the organisation.
    pub owner: String,
    /// The kind.
    pub kind: CredentialKind,
    /// The credentials for the route.
    pub auth: Auth,
    /// The origins that it may be sent to.
    pub binding: Binding,
    /// The credential's own address settings, by the catalog's names: a region, a project. The organisation's
    /// settings of the provider override them.
    pub env: BTreeMap<String, String>,
}

impl Credentials {
    /// Combines the parts. Does no I/O.
    #[must_use]
    pub fn new(parts: CredentialsParts) -> Self {
        let CredentialsParts { store, keys, egress, catalog, clock } = parts;
        let vault = Vault::new(store, keys, clock);
        let transport = Arc::new(egress.for_organisations());
        let setups = Setups { vault: vault.clone(), transport, egress, catalog };
        let (sources, accounts) = (Mutex::default(), Mutex::default());
        Self { shared: Arc::new(Shared { vault, setups, sources, accounts }) }
    }

    /// Returns the credential for a turn of `user` at `provider`: the user's active one, or else the
    /// organisation's. `None`: use the process's own, if it has one. One round trip, unless it finds a forgotten trial.
    ///
    /// # Errors
    /// The store fails, or the secret cannot be opened.
    pub async fn auth(
        &self,
        org: OrgId,
        user: Option<&str>,
        provider: &str,
    ) -> Result<Option<Found>, CredentialsError> {
        let user = user.map(str::to_owned);
        let find = || self.store().credential_for(org, provider.to_owned(), user.clone());
        let mut found = find().await?;
        if found.as_ref().is_some_and(|stored| self.is_forgotten(&stored.row)) {
            self.list(org).await?;
            found = find().await?;
        }
        let Some(stored) = found else { return Ok(None) };
        let (auth, env, binding) = self.opened(org, &stored).map_err(unreadable(&stored.row))?;
        let CredentialRow { id, owner, kind, .. } = stored.row;
        Ok(Some(Found { id, owner, kind, auth, binding, env }))
    }

    /// Returns the way out to addresses that organisations set.
    #[must_use]
    pub fn egress(&self) -> &Egress {
        &self.setups().egress
    }

    /// Seals something else of an organisation, for the row `id` at `version` alone. The id's prefix gives its kind.
    ///
    /// # Errors
    /// There is no key to seal with, or the store fails.
    pub async fn seal_of(
        &self,
        org: OrgId,
        id: &str,
        version: i64,
        secret: &[u8],
    ) -> Result<Sealed, CredentialsError> {
        Ok(self.vault().data_key(org).await?.seal(&Row { org, id, version }, secret))
    }

    /// Opens what [`Credentials::seal_of`] sealed for the same row and version.
    ///
    /// # Errors
    /// There is no key to open it with, it belongs to another row, or the store fails.
    pub async fn open_of(
        &self,
        org: OrgId,
        id: &str,
        version: i64,
        sealed: &Sealed,
    ) -> Result<Vec<u8>, CredentialsError> {
        self.vault().open(&Row { org, id, version }, sealed).await
    }

    /// Opens a credential into a route's credentials, its own address settings, and its binding.
    fn opened(
        &self,
        org: OrgId,
        stored: &SealedCredential,
    ) -> Result<(Auth, BTreeMap<String, String>, Binding), CredentialsError> {
        let CredentialRow { id, kind, version, .. } = &stored.row;
        let mut env = BTreeMap::new();
        if *kind == CredentialKind::OAuth {
            let source = self.signed_in(org, stored)?;
            let binding = source.binding();
            return Ok((Auth::Source(Arc::new(source)), env, binding));
        }
        let row = Row { org, id, version: *version };
        let bytes = self.vault().open_with(&stored.key, &row, &stored.sealed)?;
        let (material, binding) = Material::from_bytes(*kind, &bytes)?;
        env.extend(material.env());
        let auth = match material {
            Material::ApiKey(key) => Auth::Key(key),
            Material::Aws(access) => Auth::SigV4(access),
            Material::ServiceAccount(account) => {
                Auth::Source(Arc::new(self.account(org, id, *version, *account)))
            }
            Material::OAuth(_) => return Err(crate::EnvelopeError::Refused.into()),
        };
        Ok((auth, env, binding))
    }

    /// Returns the tokens of a sign-in, which all turns of this process share.
    fn signed_in(
        &self,
        org: OrgId,
        stored: &SealedCredential,
    ) -> Result<OAuthSource, CredentialsError> {
        let key = (org, stored.row.id.clone());
        let known = self.sources().get(&key).cloned();
        let source = match known {
            Some(source) => source,
            None => {
                let (vault, setups) = (self.vault().clone(), self.setups().clone());
                let new = OAuthSource::new(vault, setups, org, stored)?;
                let mut sources = self.sources();
                if sources.len() >= MAX_SOURCES {
                    sources.retain(|_, source| source.is_used());
                }
                sources.entry(key).or_insert(new).clone()
            }
        };
        source.see(stored)?;
        Ok(source)
    }

    /// Returns the tokens of a service account, which all turns of this process share.
    fn account(
        &self,
        org: OrgId,
        id: &str,
        version: i64,
        account: ServiceAccount,
    ) -> AccountSource {
        let mut accounts = self.accounts();
        let known = accounts.get(&(org, id.to_owned()));
        if let Some(source) = known.filter(|source| source.version() == version) {
            return source.clone();
        }
        if accounts.len() >= MAX_SOURCES {
            accounts.retain(|_, source| source.is_used());
        }
        let (transport, clock) = (self.setups().transport.clone(), self.vault().clock.clone());
        let new = AccountSource::new(version, account, transport, clock);
        accounts.insert((org, id.to_owned()), new.clone());
        new
    }

    /// Returns an organisation's credentials without their secrets, and without trials that nobody finished.
    ///
    /// # Errors
    /// The store fails.
    pub async fn list(&self, org: OrgId) -> Result<Vec<CredentialRow>, CredentialsError> {
        let rows = self.store().credentials(org).await?;
        if !self.end_key_trials(org, &rows).await? {
            return Ok(rows);
        }
        Ok(self.store().credentials(org).await?)
    }

    /// Stores a secret, and makes it its owner's active one for the provider.
    ///
    /// # Errors
    /// The owner already has this label, the organisation has too many, or there is no secrets key.
    pub async fn add(&self, org: OrgId, new: NewSecret) -> Result<CredentialRow, CredentialsError> {
        checked_provider(&new.provider)?;
        checked_name("owner", &new.owner, true)?;
        checked_name("label", &new.label, false)?;
        self.checked_material(&new.material)?;
        self.keep(org, &new, None).await
    }

    /// Changes a credential.
    ///
    /// # Errors
    /// No credential has this id, the label belongs to another, or the secret is of another kind.
    pub async fn change(
        &self,
        org: OrgId,
        id: CredentialId,
        change: SecretChange,
    ) -> Result<CredentialRow, CredentialsError> {
        const WHAT: &str = "a credential of this id was";
        let SecretChange { label, active, material } = change;
        label.as_ref().map_or(Ok(()), |label| checked_name("label", label, false))?;
        material.as_ref().map_or(Ok(()), |material| self.checked_material(material))?;
        let id = String::from(id);
        let before = self.store().credential(org, id.clone()).await;
        let before = before.map_err(CredentialsError::of(WHAT))?.row;
        if let Some(material) = material {
            if material.kind() != before.kind {
                let kind = before.kind.as_str();
                let message = format!("the credential is of the kind `{kind}`: add another one");
                return Err(CredentialsError::Invalid(message));
            }
            let key = self.vault().data_key(org).await?;
            let binding = self.binding(org, &before.provider, &material, None).await?;
            let row = Row { org, id: &id, version: before.version + 1 };
            let renewed = Renewed {
                from: before.version,
                sealed: key.seal(&row, &material.to_bytes(&binding)),
                hint: material.hint(),
                expires_ms: material.expires_ms(),
            };
            let now = self.now();
            if !self.store().renew_credential(org, id.clone(), renewed, now).await? {
                let message = "the credential is being changed by somebody else: try again";
                return Err(CredentialsError::Conflict(message.to_owned()));
            }
        }
        let change = CredentialChange { label, active };
        let changed = self.store().change_credential(org, id, change, self.now()).await;
        changed.map_err(CredentialsError::of(WHAT))
    }

    /// Deletes a credential.
    ///
    /// # Errors
    /// No credential has this id.
    pub async fn remove(&self, org: OrgId, id: CredentialId) -> Result<(), CredentialsError> {
        self.sources().remove(&(org, id.as_str().to_owned()));
        self.accounts().remove(&(org, id.as_str().to_owned()));
        let removed = self.store().remove_credential(org, id.into()).await;
        removed.map_err(CredentialsError::of("a credential of this id was"))
    }

    /// Returns an organisation's provider settings.
    ///
    /// # Errors
    /// The store fails.
    pub async fn providers(&self, org: OrgId) -> Result<Vec<ProviderSetup>, CredentialsError> {
        self.read_settings(org).await?.iter().map(setup::read).collect()
    }

    /// Opens the hidden values in a row of provider settings, for one request. `None`: it has none sealed.
    /// At most one round trip.
    ///
    /// # Errors
    /// The store fails, or the values cannot be opened; the error says what to do.
    pub async fn opened_settings(
        &self,
        org: OrgId,
        row: &ProviderSetting,
    ) -> Result<Option<OpenedSettings>, CredentialsError> {
        stored::opened(self.vault(), &self.setups().catalog(), org, row).await
    }

    /// Sets up a provider; [`ALL_PROVIDERS`] sets the values for all.
    ///
    /// # Errors
    /// A member is invalid (the error names it), someone else changes the settings at the same time, or a
    /// secret cannot be sealed without a secrets key. A value [`crate::HIDDEN`] of a header or key keeps the
    /// stored one.
    pub async fn set_provider(
        &self,
        org: OrgId,
        provider: &str,
        settings: &ProviderSettings,
        secret: &ClientSecret,
    ) -> Result<ProviderSetup, CredentialsError> {
        if provider != ALL_PROVIDERS {
            checked_provider(provider)?;
        }
        self.setups().set(org, provider, settings, secret).await
    }

    /// Deletes the settings of a provider.
    ///
    /// # Errors
    /// The provider has no settings.
    pub async fn remove_provider(
        &self,
        org: OrgId,
        provider: &str,
    ) -> Result<(), CredentialsError> {
        self.setups().remove(org, provider).await
    }

    /// Rewraps every data key with the current master key, in all organisations, one commit each. A call that
    /// was stopped half-way is continued by the next. If it leaves no key, the older master keys are no
    /// longer needed. Data keys that cannot be opened and seal nothing are removed.
    ///
    /// # Errors
    /// The store fails, or there is no secrets key. A data key that cannot be unwrapped is counted and kept.
    pub async fn rewrap(&self) -> Result<Rewrapped, CredentialsError> {
        self.vault().rewrap().await
    }

    /// Checks the addresses in a secret: a service account has one.
    fn checked_material(&self, material: &Material) -> Result<(), CredentialsError> {
        match material {
            Material::ServiceAccount(account) => {
                check_address(self.setups().egress.rules(), "token_uri", &account.token_uri)
            }
            Material::ApiKey(_) | Material::Aws(_) | Material::OAuth(_) => Ok(()),
        }
    }

    /// Seals and stores a secret. With `sign_in`, it is the result of that sign-in and replaces the one with
    /// its label.
    pub(crate) async fn keep(
        &self,
        org: OrgId,
        new: &NewSecret,
        sign_in: Option<(&str, &OAuthSettings)>,
    ) -> Result<CredentialRow, CredentialsError> {
        let key = self.vault().data_key(org).await?;
        let oauth = sign_in.map(|(_, oauth)| oauth);
        let binding = self.binding(org, &new.provider, &new.material, oauth).await?;
        for _ in 0..TRIES {
            let NewSecret { owner, provider, label, material } = new.clone();
            let there = self.store().credential_labelled(
                org,
                provider.clone(),
                owner.clone(),
                label.clone(),
            );
            let (id, version) = match (there.await?, sign_in) {
                (None, _) => (String::from(CredentialId::mint(&mut self.mint())), 1),
                (Some((id, version)), Some(_)) => (id, version + 1),
                (Some((id, _)), None) => {
                    return Err(CredentialsError::Conflict(describe_taken(&id, new)));
                }
            };
            let sealed = key.seal(&Row { org, id: &id, version }, &material.to_bytes(&binding));
            let row = NewCredential {
                id: id.clone(),
                owner,
                provider,
                label,
                kind: material.kind(),
                hint: material.hint(),
                sealed,
                version,
                expires_ms: material.expires_ms(),
            };
            let now = self.now();
            let kept = match sign_in {
                Some((sign_in, _)) => {
                    let sign_in = sign_in.to_owned();
                    let kept = self.store().complete_sign_in(org, sign_in, row, now).await;
                    kept.map_err(CredentialsError::of("the sign-in was"))?
                }
                None => self.store().keep_credential(org, row, now).await?,
            };
            match kept {
                Kept::Kept => {
                    let kept = self.store().credential(org, id).await;
                    return Ok(kept.map_err(CredentialsError::of("the credential was"))?.row);
                }
                Kept::Changed => {}
                Kept::Full => {
                    let message = format!(
                        "an organisation has at most {} credentials: remove some",
                        store::MAX_CREDENTIALS
                    );
                    return Err(CredentialsError::Full(message));
                }
            }
        }
        let message = "the credential is being changed by somebody else: try again";
        Err(CredentialsError::Conflict(message.to_owned()))
    }

    /// Checks the addresses of an organisation's request before anything is sent. The connection checks the
    /// addresses that a name resolves to once more.
    ///
    /// # Errors
    /// The operator does not allow it; the text says why, and what to do.
    pub fn check_destination(&self, provider: &str, urls: &[String]) -> Result<(), String> {
        let rules = self.setups().egress.rules();
        let name = format!("the address of {provider}");
        let check = |url: &String| check_address(rules, &name, url.trim());
        urls.iter().try_for_each(check).map_err(|error| error.to_string())
    }

    /// Returns the binding for a secret that is entered now.
    async fn binding(
        &self,
        org: OrgId,
        provider: &str,
        material: &Material,
        oauth: Option<&OAuthSettings>,
    ) -> Result<Binding, CredentialsError> {
        let rows = self.store().provider_settings(org).await?;
        let set_up = rows.iter().find(|row| row.provider == provider);
        let sign_in = match (oauth, material, set_up) {
            (Some(oauth), _, _) => sign_in_origins(oauth),
            // Tokens from elsewhere are refreshed with the current settings.
            (None, Material::OAuth(_), Some(row)) => {
                oauth_of(row)?.map(|oauth| sign_in_origins(&oauth)).unwrap_or_default()
            }
            (None, _, _) => BTreeSet::new(),
        };
        let rows = rows.iter().map(|row| (row.provider.as_str(), row.settings.as_str()));
        let (settings, _) = OrgSettings::read(rows); // unreadable settings allow no address
        let env = material.env();
        let env = |name: &str| env.get(name).cloned();
        let catalog = self.setups().catalog();
        let destination = Destination::of(&catalog, &settings, provider, &env);
        Ok(Binding { destination, sign_in })
    }

    pub(crate) fn store(&self) -> &Store {
        &self.shared.vault.store
    }

    pub(crate) fn vault(&self) -> &Vault {
        &self.shared.vault
    }

    pub(crate) fn setups(&self) -> &Setups {
        &self.shared.setups
    }

    pub(crate) fn now(&self) -> TimestampMs {
        self.shared.vault.clock.now_ms()
    }

    pub(crate) fn mint(&self) -> IdMint {
        IdMint::after(Stamp::default(), self.now())
    }

    fn sources(&self) -> std::sync::MutexGuard<'_, HashMap<(OrgId, String), OAuthSource>> {
        // No foreign code runs under this lock.
        self.shared.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accounts(&self) -> std::sync::MutexGuard<'_, HashMap<(OrgId, String), AccountSource>> {
        self.shared.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// Says that a label is taken, and what to do.
fn describe_taken(id: &str, NewSecret { provider, label, .. }: &NewSecret) -> String {
    let named = if label == "default" { String::new() } else { format!(" --label '{label}'") };
    format!(
        "{provider} has a credential called `{label}` already: replace its secret with `opencode-cloud credential add {provider}{named} --replace` or `PATCH /platform/credential/{id}`, forget it with `opencode-cloud credential remove {id}`, or keep both with `--label NAME`"
    )
}

/// The provider name of the settings for all providers.
pub const ALL_PROVIDERS: &str = "*";

/// Checks a provider's id, as in the catalog: words that fit into a path.
pub(crate) fn checked_provider(provider: &str) -> Result<(), CredentialsError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if provider.is_empty() || provider.len() > MAX_NAME_CHARS || !provider.chars().all(plain) {
        let message = "a provider's id has 1 to 128 letters, digits, `-`, `_` or `.`";
        return Err(CredentialsError::Invalid(message.to_owned()));
    }
    Ok(())
}

pub(crate) fn checked_name(
    member: &str,
    name: &str,
    may_be_empty: bool,
) -> Result<(), CredentialsError> {
    let count = name.chars().count();
    if (count == 0 && !may_be_empty)
        || count > MAX_NAME_CHARS
        || name.chars().any(char::is_control)
        || name.trim() != name
    {
        let message = format!(
            "`{member}` has at most {MAX_NAME_CHARS} characters, without control characters or white space around it"
        );
        return Err(CredentialsError::Invalid(message));
    }
    Ok(())
}
