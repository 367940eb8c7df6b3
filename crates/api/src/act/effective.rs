//! The settings that count at a Location: from its files where they are here, otherwise from rows.

use domain::OrgId;
use settings::{Effective, OrganisationSettings, ProjectSettings, effective};
use store::{KnownSettings, SettingsOf, SettingsSeen};
use tracing::{debug, warn};

use super::checkout::local_checkout;

use crate::ApiState;
use crate::error::ApiError;

/// Returns the settings of the Location that `of` names, as its last holder read them; those of the organisation if nobody
/// has worked there yet. One round trip.
pub(crate) async fn settings_of(
    state: &ApiState,
    org: OrgId,
    of: SettingsOf,
) -> Result<Effective, ApiError> {
    effective_of(state, org, of, None).await
}

/// Does the same for a directory, whose files count as they are now, if it is one of this machine and this gateway may look into
/// it.
pub(crate) async fn settings_in(
    state: &ApiState,
    org: OrgId,
    of: SettingsOf,
    directory: &str,
) -> Result<Effective, ApiError> {
    let files = settings_files(state, directory).await;
    effective_of(state, org, of, files).await
}

/// Returns the settings in the files of a directory of this machine; `None` if they cannot be read here.
async fn settings_files(state: &ApiState, directory: &str) -> Option<ProjectSettings> {
    let (checkouts, path) = local_checkout(state, directory).await?;
    let read = checkouts.read_settings(&path).await;
    read.inspect_err(
        |error| debug!(%error, directory, "a project's settings are those of its rows"),
    )
    .ok()
}

/// Returns the settings with the project's from its files, if these are given, otherwise from rows.
async fn effective_of(
    state: &ApiState,
    org: OrgId,
    of: SettingsOf,
    files: Option<ProjectSettings>,
) -> Result<Effective, ApiError> {
    let stored = state.store().settings(org, of, KnownSettings::default()).await?;
    let organisation = match stored.organisation {
        SettingsSeen::New(text) => OrganisationSettings::parse(&text.bytes),
        SettingsSeen::Nothing | SettingsSeen::Known => OrganisationSettings::default(),
    };
    let project = match (files, stored.location) {
        (Some(project), _) => project,
        (None, SettingsSeen::New(text)) => {
            ProjectSettings::from_json(&text.bytes).unwrap_or_else(|error| {
                // A worker of another build wrote them. The turn decides by what its own worker reads.
                warn!(org.id = %org, %error, "the stored settings of a project cannot be read");
                ProjectSettings::default()
            })
        }
        (None, SettingsSeen::Nothing | SettingsSeen::Known) => ProjectSettings::default(),
    };
    Ok(effective(&organisation, &project))
}
