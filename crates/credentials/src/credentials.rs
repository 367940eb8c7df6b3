//! What people and turns ask for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use catalog::{Destination, Feed, OrgSettings};
use domain::{Clock, CredentialId, IdMint, OrgId, Stamp, TimestampMs};
use egress::Egress;
use llm_client::Auth;
use store::{
    CredentialChange, CredentialKind, CredentialRow, Kept, NewCredential, Renewed,
    SealedCredential, Store,
};

use crate::binding::{Binding, sign_in_origins};
use crate::envelope::Row;
use crate::lost::unreadable;
use crate::material::Material;
use crate::service_account::{AccountSource, ServiceAccount};
use crate::settings::{OAuthSettings, ProviderSettings, check_address};
use crate::setup::{ClientSecret, ProviderSetup, Setups, oauth_of};
use crate::source::OAuthSource;
use crate::vault::{Rewrapped, Vault};
use crate::{CredentialsError, MasterKeys};

/// Sign-ins whose tokens a process holds; when there are more, those that no turn has are let go.
const MAX_SOURCES: usize = 10_000;
/// How often a secret is sealed anew when others come in between.
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

/// What [`Credentials`] are made of.
pub struct CredentialsParts {
    /// Where they are kept.
    pub store: Store,
    /// What they are sealed with; `None`: none can be kept, and stored ones cannot be opened.
    pub keys: Option<MasterKeys>,
    /// Where organisations may send us, and what carries the requests of sign-ins.
    pub egress: Egress,
    /// Where providers are; `None`: nobody knows but the organisations.
    pub catalog: Option<Arc<Feed>>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// A secret to be kept.
#[derive(Debug, Clone)]
pub struct NewSecret {
    /// Whose it is: a user's name, empty for the organisation's.
    pub owner: String,
    /// The provider.
    pub provider: String,
    /// What people call it.
    pub label: String,
    /// The secret.
    pub material: Material,
}

/// A change of a credential.
#[derive(Debug, Clone, Default)]
pub struct SecretChange {
    /// Another label.
    pub label: Option<String>,
    /// Whether turns use it.
    pub active: Option<bool>,
    /// Another secret of the same kind.
    pub material: Option<Material>,
}

/// What a turn uses.
#[derive(Debug, Clone)]
pub struct Found {
    /// Which credential it is.
    pub id: String,
    /// Whose it is; empty for the organisation's.
    pub owner: String,
    /// What it is.
    pub kind: CredentialKind,
    /// For the route.
    pub auth: Auth,
    /// Whom it may be shown to.
    pub binding: Binding,
    /// What it says itself of where it is good, by the catalog's names: a region, a project. The organisation's settings
    /// of the provider come before it.
    pub env: BTreeMap<String, String>,
}

impl Credentials {
    /// Puts them together; asks nobody.
    #[must_use]
    pub fn new(parts: CredentialsParts) -> Self {
        let CredentialsParts { store, keys, egress, catalog, clock } = parts;
        let vault = Vault::new(store, keys, clock);
        let transport = Arc::new(egress.for_organisations());
        let setups = Setups { vault: vault.clone(), transport, egress, catalog };
        let (sources, accounts) = (Mutex::default(), Mutex::default());
        Self { shared: Arc::new(Shared { vault, setups, sources, accounts }) }
    }

    /// The credential of a turn of `user` at `provider`: the user's active one, else the organisation's. `None`: the
    /// process's own, if it has one. One round trip.
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
        let found = self.store().credential_for(org, provider.to_owned(), user).await?;
        let Some(stored) = found else { return Ok(None) };
        let (auth, env, binding) = self.opened(org, &stored).map_err(unreadable(&stored.row))?;
        let CredentialRow { id, owner, kind, .. } = stored.row;
        Ok(Some(Found { id, owner, kind, auth, binding, env }))
    }

    /// What a route is given of a credential, with its own environment.
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

    /// The tokens of a sign-in, which all turns of this process share.
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

    /// The same of a service account.
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

    /// What people see of an organisation's credentials.
    ///
    /// # Errors
    /// The store fails.
    pub async fn list(&self, org: OrgId) -> Result<Vec<CredentialRow>, CredentialsError> {
        Ok(self.store().credentials(org).await?)
    }

    /// Keeps a secret, and makes it its owner's active one for the provider.
    ///
    /// # Errors
    /// The owner has one of this label; the organisation has too many; there is no secrets key.
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
    /// There is none of this id; the label is another's; the secret is of another kind.
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

    /// Forgets a credential.
    ///
    /// # Errors
    /// There is none of this id.
    pub async fn remove(&self, org: OrgId, id: CredentialId) -> Result<(), CredentialsError> {
        self.sources().remove(&(org, id.as_str().to_owned()));
        self.accounts().remove(&(org, id.as_str().to_owned()));
        let removed = self.store().remove_credential(org, id.into()).await;
        removed.map_err(CredentialsError::of("a credential of this id was"))
    }

    /// What an organisation has set up about providers.
    ///
    /// # Errors
    /// The store fails.
    pub async fn providers(&self, org: OrgId) -> Result<Vec<ProviderSetup>, CredentialsError> {
        self.setups().all(org).await
    }

    /// Sets a provider up; [`ALL_PROVIDERS`] what holds for all.
    ///
    /// # Errors
    /// A member cannot be used, which is named; others change it at the same time; there is no secrets key for the
    /// client's secret.
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

    /// Forgets what was set up about a provider.
    ///
    /// # Errors
    /// Nothing was.
    pub async fn remove_provider(
        &self,
        org: OrgId,
        provider: &str,
    ) -> Result<(), CredentialsError> {
        self.setups().remove(org, provider).await
    }

    /// Wraps every data key with the current master key, in all organisations, one commit each: stopped half-way, it
    /// goes on with the next call. After it, if none is left, the older master keys are not needed any more. Data keys that cannot be opened and seal nothing any
    /// more are removed.
    ///
    /// # Errors
    /// The store fails, or there is no secrets key. A data key that cannot be unwrapped is counted, and left.
    pub async fn rewrap(&self) -> Result<Rewrapped, CredentialsError> {
        self.vault().rewrap().await
    }

    /// Where an organisation's service account sends us.
    fn checked_material(&self, material: &Material) -> Result<(), CredentialsError> {
        match material {
            Material::ServiceAccount(account) => {
                check_address(self.setups().egress.rules(), "token_uri", &account.token_uri)
            }
            Material::ApiKey(_) | Material::Aws(_) | Material::OAuth(_) => Ok(()),
        }
    }

    /// Seals and keeps a secret; with `sign_in`, as what came of that, and in the place of one of its label.
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
                (Some(_), None) => {
                    let message = format!("a credential called `{label}` is there already");
                    return Err(CredentialsError::Conflict(message));
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

    /// Checks where a request for an organisation would go, before anything is sent. A name is checked again where it
    /// leads to, when the connection is made.
    ///
    /// # Errors
    /// The operator does not allow it: why, and what can be done.
    pub fn check_destination(&self, provider: &str, urls: &[String]) -> Result<(), String> {
        let rules = self.setups().egress.rules();
        let name = format!("the address of {provider}");
        let check = |url: &String| check_address(rules, &name, url.trim());
        urls.iter().try_for_each(check).map_err(|error| error.to_string())
    }

    /// What a secret that is entered now is bound to.
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
            // Tokens that were got elsewhere are refreshed as it is set up now.
            (None, Material::OAuth(_), Some(row)) => {
                oauth_of(row)?.map(|oauth| sign_in_origins(&oauth)).unwrap_or_default()
            }
            (None, _, _) => BTreeSet::new(),
        };
        let rows = rows.iter().map(|row| (row.provider.as_str(), row.settings.as_str()));
        let (settings, _) = OrgSettings::read(rows); // what cannot be read leads nowhere
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
        // No code of others runs under this lock.
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

/// What is set up for all providers.
pub const ALL_PROVIDERS: &str = "*";

/// The catalog's ids of providers: words that fit in a path.
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
