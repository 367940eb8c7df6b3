//! The stored form of provider settings: a text that shows no secret, and the secrets sealed beside it.
//!
//! ```text
//! settings ─┬─ text: placeholders for hidden values, and the member `hidden`
//!           └─ sealed: { client secret, hidden values, their binding } for this provider and version
//! ```
//!
//! Settings without hidden values keep an older form: no member `hidden`, and the bytes of the client's
//! secret alone are sealed. Rows from before hidden values were sealed have them in their text; they are
//! read as they are, and the next write seals them.

use catalog::{Catalog, Destination, OrgSettings};
use domain::OrgId;
use llm_client::Secret;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use store::{ProviderSetting, Sealed, StoreError};
use zeroize::Zeroizing;

use crate::binding::{Binding, sign_in_origins};
use crate::envelope::Row;
use crate::hidden::{self, HIDDEN, HiddenValues};
use crate::settings::ProviderSettings;
use crate::vault::Vault;
use crate::{CredentialsError, EnvelopeError, StoredSecret};

/// The member of a row's text that says what is sealed beside it.
const MARK: &str = "hidden";

/// The member [`MARK`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Mark {
    /// The OAuth client's secret is sealed as well.
    client: bool,
}

/// The text of a row.
#[derive(Debug)]
pub(crate) struct Shown {
    /// The settings. Hidden values of an older row are in it as they are.
    pub(crate) settings: ProviderSettings,
    /// The OAuth client has a secret.
    pub(crate) has_client_secret: bool,
    /// The hidden values are sealed beside the text.
    pub(crate) is_sealed: bool,
}

impl Shown {
    pub(crate) fn of(row: &ProviderSetting) -> Result<Self, CredentialsError> {
        let unreadable = |error: serde_json::Error| {
            StoreError::Unreadable(format!("the settings of {}: {error}", row.provider))
        };
        let mut text: Map<String, Value> =
            serde_json::from_str(&row.settings).map_err(unreadable)?;
        let mark = text.remove(MARK).map(Mark::deserialize).transpose().map_err(unreadable)?;
        let settings = serde_json::from_value(Value::Object(text)).map_err(unreadable)?;
        Ok(Self {
            settings,
            has_client_secret: mark.map_or(row.sealed.is_some(), |mark| mark.client),
            is_sealed: mark.is_some(),
        })
    }
}

/// The secrets of a provider's settings.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    /// The secret of the OAuth client.
    pub(crate) client: Option<Secret>,
    /// The hidden values.
    pub(crate) hidden: HiddenValues,
    /// The origins that hidden values may be sent to.
    pub(crate) binding: Binding,
}

/// The sealed form of [`Secrets`].
#[derive(Serialize, Deserialize)]
struct Payload {
    client: Option<String>,
    hidden: HiddenValues,
    binding: Value,
}

/// Returns a row's text and seals its secrets. `settings` has placeholders for the hidden values.
pub(crate) async fn seal(
    vault: &Vault,
    org: OrgId,
    row: (&str, i64),
    settings: &ProviderSettings,
    secrets: &Secrets,
) -> Result<(String, Option<Sealed>), CredentialsError> {
    let unwritten =
        |error| CredentialsError::Invalid(format!("the settings cannot be written: {error}"));
    let (provider, version) = row;
    let mut text = serde_json::to_value(settings).map_err(unwritten)?;
    let client = secrets.client.as_ref();
    let (id, payload) = if secrets.hidden.is_empty() {
        let Some(client) = client else { return Ok((text.to_string(), None)) };
        (client_row(provider, settings), Zeroizing::new(client.expose().as_bytes().to_vec()))
    } else {
        let mark = Mark { client: client.is_some() };
        text[MARK] = serde_json::to_value(mark).map_err(unwritten)?;
        let payload = Payload {
            client: client.map(|client| client.expose().to_owned()),
            hidden: secrets.hidden.clone(),
            binding: secrets.binding.to_json(),
        };
        let payload = serde_json::to_vec(&payload).map_err(unwritten)?;
        (hidden_row(provider, settings), Zeroizing::new(payload))
    };
    let key = vault.data_key(org).await?;
    let sealed = key.seal(&Row { org, id: &id, version }, &payload);
    Ok((text.to_string(), Some(sealed)))
}

/// Opens the secrets of a row. Hidden values of an older row come from its text, with the binding that
/// `catalog` and the row give now.
///
/// # Errors
/// They do not open: the error says what to do.
pub(crate) async fn open(
    vault: &Vault,
    catalog: &Catalog,
    org: OrgId,
    row: &ProviderSetting,
) -> Result<Secrets, CredentialsError> {
    let Shown { settings, is_sealed, .. } = Shown::of(row)?;
    let provider = row.provider.clone();
    let secret = if is_sealed {
        StoredSecret::Settings { provider }
    } else {
        StoredSecret::Client { provider }
    };
    if !is_sealed {
        let mut text = settings.clone();
        let client = match &row.sealed {
            None => None,
            Some(sealed) => {
                let id = client_row(&row.provider, &settings);
                let at = Row { org, id: &id, version: row.version };
                let opened = vault.open(&at, sealed).await.and_then(|bytes| {
                    Ok(String::from_utf8(bytes).map_err(|_| EnvelopeError::Refused)?)
                });
                Some(Secret::new(&opened.map_err(|error| error.about(|| secret))?))
            }
        };
        let binding = binding(catalog, &row.provider, &row.settings);
        return Ok(Secrets { client, hidden: hidden::take(&mut text.overrides), binding });
    }
    let opened = match &row.sealed {
        None => Err(EnvelopeError::Refused.into()),
        Some(sealed) => {
            let id = hidden_row(&row.provider, &settings);
            let at = Row { org, id: &id, version: row.version };
            vault.open(&at, sealed).await.and_then(|bytes| {
                let bytes = Zeroizing::new(bytes);
                Ok(serde_json::from_slice(&bytes).map_err(|_| EnvelopeError::Refused)?)
            })
        }
    };
    let Payload { client, hidden, binding } =
        opened.map_err(|error: CredentialsError| error.about(|| secret))?;
    let client = client.map(|client| Secret::new(&client));
    Ok(Secrets { client, hidden, binding: Binding::of_json(&binding) })
}

/// Provider settings with their hidden values, for one request.
pub struct OpenedSettings {
    /// The settings as the catalog reads them: [`OrgSettings::read`].
    pub text: Zeroizing<String>,
    /// The origins that the hidden values may be sent to.
    pub binding: Binding,
}

impl std::fmt::Debug for OpenedSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenedSettings").field("binding", &self.binding).finish_non_exhaustive()
    }
}

/// Opens a row's settings. `None`: nothing in them is sealed, so the row's text is all there is.
///
/// # Errors
/// They do not open: the error says what to do.
pub(crate) async fn opened(
    vault: &Vault,
    catalog: &Catalog,
    org: OrgId,
    row: &ProviderSetting,
) -> Result<Option<OpenedSettings>, CredentialsError> {
    let Shown { mut settings, is_sealed, .. } = Shown::of(row)?;
    if !is_sealed {
        return Ok(None);
    }
    let Secrets { hidden, binding, .. } = open(vault, catalog, org, row).await?;
    if !hidden::put_back(&mut settings.overrides, &hidden) {
        let secret = Box::new(StoredSecret::Settings { provider: row.provider.clone() });
        return Err(CredentialsError::Unreadable { secret, why: EnvelopeError::Refused });
    }
    let text = serde_json::to_string(&settings).map_err(|error| {
        StoreError::Unreadable(format!("the settings of {}: {error}", row.provider))
    })?;
    Ok(Some(OpenedSettings { text: Zeroizing::new(text), binding }))
}

/// Returns the binding of hidden values in these settings.
pub(crate) fn binding(catalog: &Catalog, provider: &str, text: &str) -> Binding {
    let (settings, _) = OrgSettings::read([(provider, text)]); // unreadable settings lead nowhere
    let Destination { origins, .. } = Destination::of(catalog, &settings, provider, &|_| None);
    let is_catalogs = !settings.moves(provider);
    Binding { destination: Destination { origins, is_catalogs }, ..Binding::default() }
}

/// Fills in the values that clients sent as placeholders, because they have only seen those.
///
/// # Errors
/// A placeholder stands for nothing, or the values were entered for other hosts.
pub(crate) fn kept(
    mut new: HiddenValues,
    before: &Secrets,
    binding: &Binding,
) -> Result<HiddenValues, CredentialsError> {
    for (at, value) in new.iter_mut().filter(|(_, value)| *value == HIDDEN) {
        let Some(known) = before.hidden.get(at) else {
            let message =
                format!("`overrides{at}` is hidden and has no stored value: send the value");
            return Err(CredentialsError::Invalid(message));
        };
        let Destination { origins, is_catalogs } = &binding.destination;
        let origins = Vec::from_iter(origins.iter().cloned());
        before.binding.allows(&origins, *is_catalogs).map_err(|other| {
            let message = format!(
                "`overrides{at}` is hidden, and is not kept: {other}; send the value again"
            );
            CredentialsError::Invalid(message)
        })?;
        value.clone_from(known);
    }
    Ok(new)
}

/// Returns the row id that a client's secret alone is sealed for. It contains the hosts, so the secret opens
/// only for those.
fn client_row(provider: &str, settings: &ProviderSettings) -> String {
    let origins = settings.oauth.as_ref().map(sign_in_origins).unwrap_or_default();
    let origins = Vec::from_iter(origins).join(" ");
    format!("provider_setting/{provider} {origins}")
}

/// Returns the row id that hidden values are sealed for, with the client's secret. No other row has it: a
/// provider's id has no `/`.
fn hidden_row(provider: &str, settings: &ProviderSettings) -> String {
    format!("hidden/{}", client_row(provider, settings))
}
