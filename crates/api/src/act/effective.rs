//! The settings that count at a Location, from rows: a gateway never reads files.

use domain::OrgId;
use settings::{Effective, OrganisationSettings, ProjectSettings, effective};
use store::{KnownSettings, SettingsOf, SettingsSeen};
use tracing::warn;

use crate::ApiState;
use crate::error::ApiError;

/// Returns the settings of the Location that `of` names, as its last holder read them; those of the organisation if nobody
/// has worked there yet. One round trip.
pub(crate) async fn settings_of(
    state: &ApiState,
    org: OrgId,
    of: SettingsOf,
) -> Result<Effective, ApiError> {
    let stored = state.store().settings(org, of, KnownSettings::default()).await?;
    let organisation = match stored.organisation {
        SettingsSeen::New(text) => OrganisationSettings::parse(&text.bytes),
        SettingsSeen::Nothing | SettingsSeen::Known => OrganisationSettings::default(),
    };
    let project = match stored.location {
        SettingsSeen::New(text) => {
            ProjectSettings::from_json(&text.bytes).unwrap_or_else(|error| {
                // A worker of another build wrote them. The turn decides by what its own worker reads.
                warn!(org.id = %org, %error, "the stored settings of a project cannot be read");
                ProjectSettings::default()
            })
        }
        SettingsSeen::Nothing | SettingsSeen::Known => ProjectSettings::default(),
    };
    Ok(effective(&organisation, &project))
}
