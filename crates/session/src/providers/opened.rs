//! Opens the hidden values of an organisation's provider settings (headers, keys) for one request. They are
//! never cached: the settings that decisions read have placeholders in their place.

use catalog::{OrgSettings, Overrides};
use credentials::{Binding, OTHER_HOST, OpenedSettings};
use llm_client::{LlmError, Route};
use llm_protocol::ErrorReason;
use store::StoreError;
use tracing::warn;

use super::OrgModels;
use super::way::{Blocked, unusable};

/// The organisation's changes to the catalog with the hidden values of one provider.
pub(super) struct Opened {
    pub(super) overrides: Overrides,
    binding: Binding,
}

impl OrgModels {
    /// Opens the settings of a provider. `None`: nothing in them is sealed. At most one round trip.
    pub(super) async fn opened(&self, provider: &str) -> Result<Option<Opened>, Blocked> {
        let Some(row) = self.sealed.get(provider) else { return Ok(None) };
        let Some((credentials, org)) = &self.kept else { return Ok(None) };
        let opened = credentials.opened_settings(*org, row).await;
        let opened = opened.map_err(|error| unusable("hidden settings", provider, error))?;
        let Some(OpenedSettings { text, binding }) = opened else { return Ok(None) };
        let (mut read, unreadable) = OrgSettings::read([(provider, text.as_str())]);
        if let Some((_, error)) = unreadable.into_iter().next() {
            let said = format!("the settings of {provider}: {error}");
            return Err(Blocked::Store(StoreError::Unreadable(said)));
        }
        let mut overrides = self.known.settings.overrides.clone();
        overrides.providers.append(&mut read.overrides.providers);
        Ok(Some(Opened { overrides, binding }))
    }

    /// Refuses to send hidden values to hosts that they were not entered for.
    pub(super) fn check_hidden(
        &self,
        provider: &str,
        opened: &Opened,
        route: &Route,
    ) -> Result<(), LlmError> {
        let is_catalogs = !self.known.settings.moves(provider);
        let allowed = opened.binding.allows(&catalog::route_origins(route), is_catalogs);
        allowed.map_err(|other| {
            warn!(provider, %other, "hidden settings of a provider are for another host");
            let message = format!(
                "the hidden settings (headers, keys) of `{provider}` are not sent ({OTHER_HOST}): {other}; if that \
                 is right, enter them again (PUT /platform/provider/{provider})"
            );
            LlmError::unsent(ErrorReason::Authentication, &message)
        })
    }
}
