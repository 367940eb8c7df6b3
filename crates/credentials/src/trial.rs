//! Keys and addresses that somebody tries with one request before they stay. Who tries makes them last, or takes them
//! back. If that never happens, because the page was closed meanwhile, the service takes them back.

use domain::{OrgId, TimestampMs};
use store::{CredentialChange, CredentialRow, ProviderSetting, StoreError};

use crate::setup::ClientSecret;
use crate::stored::Shown;
use crate::{Credentials, CredentialsError, ProviderSettings};

/// The label of a credential that is being tried.
pub const ON_TRIAL: &str = "on trial";
/// The longest trial, in milliseconds. One request takes a minute and a half at most.
const LONGEST_TRIAL_MS: i64 = 10 * 60 * 1_000;

impl Credentials {
    /// Returns whether a credential is on trial, and nobody has finished the trial in time.
    pub(crate) fn is_forgotten(&self, row: &CredentialRow) -> bool {
        row.label == ON_TRIAL && self.is_long_ago(row.created_ms)
    }

    fn is_long_ago(&self, began_ms: TimestampMs) -> bool {
        self.now().saturating_sub(began_ms) >= LONGEST_TRIAL_MS
    }

    /// Removes the forgotten trials among an organisation's credentials. Those that they took the place of are used
    /// again. Returns whether there were any.
    pub(crate) async fn end_key_trials(
        &self,
        org: OrgId,
        rows: &[CredentialRow],
    ) -> Result<bool, CredentialsError> {
        let mut ended = false;
        for trial in rows.iter().filter(|row| self.is_forgotten(row)) {
            // The trial made this one inactive, at the moment at which it began itself.
            let before = rows.iter().find(|row| {
                let is_beside = row.provider == trial.provider && row.owner == trial.owner;
                is_beside && row.id != trial.id && !row.active && row.updated_ms == trial.created_ms
            });
            if let Some(before) = before.filter(|_| trial.active) {
                let change = CredentialChange { label: None, active: Some(true) };
                let id = before.id.clone();
                match self.store().change_credential(org, id, change, self.now()).await {
                    Ok(_) | Err(StoreError::NotFound) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            match self.store().remove_credential(org, trial.id.clone()).await {
                Ok(()) | Err(StoreError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
            tracing::info!(credential = %trial.id, provider = %trial.provider, "removed a key whose trial nobody finished");
            ended = true;
        }
        Ok(ended)
    }

    /// Returns an organisation's provider settings as they are stored, without trials that nobody finished. One round
    /// trip, if there are none.
    ///
    /// # Errors
    /// The store fails.
    pub async fn read_settings(
        &self,
        org: OrgId,
    ) -> Result<Vec<ProviderSetting>, CredentialsError> {
        let rows = self.store().provider_settings(org).await?;
        let mut ended = false;
        for row in rows.iter().filter(|row| self.is_long_ago(row.updated_ms)) {
            // Few rows have the word, so few are parsed.
            if row.settings.contains("\"trial\"") {
                ended |= self.end_setting_trial(org, row).await?;
            }
        }
        if ended { Ok(self.store().provider_settings(org).await?) } else { Ok(rows) }
    }

    /// Sets a provider up as it was before its trial. Returns whether it was on trial.
    async fn end_setting_trial(
        &self,
        org: OrgId,
        row: &ProviderSetting,
    ) -> Result<bool, CredentialsError> {
        // Whoever needs an unreadable row says so.
        let Ok(Shown { settings, .. }) = Shown::of(row) else { return Ok(false) };
        let Some(trial) = settings.trial.clone() else { return Ok(false) };
        let provider = row.provider.as_str();
        let Some(overrides) = trial.before else {
            return match self.store().remove_provider_setting(org, provider.to_owned()).await {
                Ok(()) | Err(StoreError::NotFound) => Ok(true),
                Err(error) => Err(error.into()),
            };
        };
        let before = ProviderSettings { overrides, trial: None, ..settings };
        if let Err(error) = self.setups().set(org, provider, &before, &ClientSecret::Keep).await {
            tracing::warn!(provider, %error, "the settings before a trial could not be set again; set the provider up anew");
            return Ok(false);
        }
        Ok(true)
    }
}
