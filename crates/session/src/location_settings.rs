//! The settings of one Location, as its worker knows them: the organisation's row, and what was read in the files.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::{FencingToken, LocationRef};
use settings::{Effective, OrganisationSettings, ProjectSettings, effective, text_hash};
use store::{KnownSettings, SettingsOf, SettingsSeen, SettingsText, StoreError};
use tracing::warn;

use crate::runtime::Runtime;

/// How long the stored settings are believed, as those of providers are.
const BELIEVED: Duration = Duration::from_secs(5);

/// The settings of a Location. Cheap to clone; its drains share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct LocationSettings {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    read: Option<Instant>,
    organisation: OrganisationSettings,
    organisation_hash: Option<String>,
    /// The newest that were read in files; before that, the row's.
    project: ProjectSettings,
    /// Whether they were read in files.
    is_looked: bool,
    /// The hash of the Location's row.
    row: Option<String>,
    effective: Option<Arc<Effective>>,
}

impl LocationSettings {
    /// Reads the stored settings, unless they were read moments ago.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn read(&self, runtime: &Runtime, at: &LocationRef) -> Result<(), StoreError> {
        let now = Instant::now();
        let known = {
            let state = self.state();
            if state.read.is_some_and(|read| now.duration_since(read) < BELIEVED) {
                return Ok(());
            }
            KnownSettings {
                organisation: state.organisation_hash.clone(),
                location: state.row.clone(),
            }
        };
        let of = SettingsOf::Location(at.location.clone());
        let stored = runtime.store.settings(at.org, of, known).await?;
        let mut state = self.state();
        state.read = Some(now);
        match stored.organisation {
            SettingsSeen::Known => {}
            SettingsSeen::Nothing => {
                state.effective =
                    state.effective.take().filter(|_| state.organisation_hash.is_none());
                state.organisation = OrganisationSettings::default();
                state.organisation_hash = None;
            }
            SettingsSeen::New(text) => {
                state.organisation = OrganisationSettings::parse(&text.bytes);
                state.organisation_hash = Some(text.hash);
                state.effective = None;
            }
        }
        match stored.location {
            SettingsSeen::Known => {}
            SettingsSeen::Nothing => state.row = None,
            SettingsSeen::New(text) => {
                if !state.is_looked {
                    match ProjectSettings::from_json(&text.bytes) {
                        Ok(project) => state.project = project,
                        Err(error) => {
                            warn!(location.id = %at.location, %error, "the stored settings of a project cannot be read");
                            state.project = ProjectSettings::default();
                            state.project.add_unread(
                                "opencode.json",
                                "what was stored of it is of another version of the service",
                            );
                        }
                    }
                    state.effective = None;
                }
                state.row = Some(text.hash);
            }
        }
        Ok(())
    }

    /// Takes over what was read in the files, and publishes it if the row has something else. Files that cannot be read
    /// change nothing.
    pub(crate) async fn looked(
        &self,
        runtime: &Runtime,
        at: &LocationRef,
        token: FencingToken,
        found: Result<&ProjectSettings, &str>,
    ) {
        let Ok(found) = found else { return };
        let bytes = {
            let mut state = self.state();
            if state.project != *found {
                state.project = found.clone();
                state.effective = None;
            }
            state.is_looked = true;
            if state.row.is_none() && *found == ProjectSettings::default() {
                return;
            }
            match found.to_json() {
                Ok(bytes) => bytes,
                Err(error) => {
                    warn!(location.id = %at.location, %error, "the settings of a project cannot be published");
                    return;
                }
            }
        };
        let hash = text_hash(&bytes);
        if self.state().row.as_ref() == Some(&hash) {
            return;
        }
        let now = runtime.clock.now_ms();
        let text = SettingsText { bytes, hash: hash.clone() };
        // Whoever has lost the Location is told by its own next write. The next look tries again.
        match runtime.store.publish_settings(at.clone(), token, text, now).await {
            Ok(true) => self.state().row = Some(hash),
            Ok(false) => {}
            Err(error) => {
                warn!(location.id = %at.location, %error, "the settings of a project were not published");
            }
        }
    }

    /// Returns the settings that count now. Equal ones are the same `Arc` until something changes.
    pub(crate) fn effective(&self) -> Arc<Effective> {
        let mut state = self.state();
        if let Some(known) = &state.effective {
            return known.clone();
        }
        let settings = Arc::new(effective(&state.organisation, &state.project));
        state.effective = Some(settings.clone());
        settings
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
