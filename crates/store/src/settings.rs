//! Settings of organisations and Locations, as texts that the store does not read.

use domain::{FencingToken, LocationId, LocationRef, OrgId, ProjectId, SessionId, TimestampMs};

use crate::{Store, StoreError};

/// A text of settings with its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsText {
    /// The text.
    pub bytes: String,
    /// A hash that differs if the text does.
    pub hash: String,
}

/// The Location whose settings are read, by what the caller knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingsOf {
    /// None: only the organisation's.
    Organisation,
    /// The Location itself.
    Location(LocationId),
    /// The Location of a session.
    Session(SessionId),
    /// The Location in a project's own directory.
    Project(ProjectId),
    /// The Location in this directory, if it is a project's own.
    Directory(String),
}

/// One of two texts, as a caller knows it or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingsSeen {
    /// There is none.
    Nothing,
    /// It has the hash that the caller knows.
    Known,
    /// The caller does not know it.
    New(SettingsText),
}

/// Hashes of settings that a caller has read before; `None`: of none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownSettings {
    /// Of the organisation's.
    pub organisation: Option<String>,
    /// Of the Location's.
    pub location: Option<String>,
}

/// The settings of an organisation and of a Location, as they are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSettings {
    /// The organisation's.
    pub organisation: SettingsSeen,
    /// When those were set.
    pub organisation_ms: Option<TimestampMs>,
    /// The Location's, as its last holder read them.
    pub location: SettingsSeen,
}

impl Store {
    /// The settings of an organisation and of one of its Locations. A Location that is not there has none. One round trip.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn settings(
        &self,
        org: OrgId,
        of: SettingsOf,
        known: KnownSettings,
    ) -> Result<StoredSettings, StoreError> {
        let [mut location, mut session, mut project, mut directory] = [None, None, None, None];
        match of {
            SettingsOf::Organisation => {}
            SettingsOf::Location(id) => location = Some(id.as_str().to_owned()),
            SettingsOf::Session(id) => session = Some(id.as_str().to_owned()),
            SettingsOf::Project(id) => project = Some(id.as_str().to_owned()),
            SettingsOf::Directory(named) => directory = Some(named),
        }
        self.drain_lane()
            .run(move |connection| {
                Box::pin(async move {
                    let row = sqlx::query!(
                        "SELECT organisation_hash, organisation_bytes, organisation_ms, location_hash, location_bytes
                         FROM read_settings($1, $2, $3, $4, $5, $6, $7)",
                        org.0,
                        location,
                        session,
                        project,
                        directory,
                        known.organisation,
                        known.location,
                    )
                    .fetch_one(&mut *connection)
                    .await?;
                    Ok(StoredSettings {
                        organisation: seen(row.organisation_hash, row.organisation_bytes),
                        organisation_ms: row.organisation_ms,
                        location: seen(row.location_hash, row.location_bytes),
                    })
                })
            })
            .await
    }

    /// Sets an organisation's settings; `None` removes them. Drains that start later have them.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn set_organisation_settings(
        &self,
        org: OrgId,
        text: Option<SettingsText>,
        now: TimestampMs,
    ) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                match text {
                    Some(SettingsText { bytes, hash }) => sqlx::query!(
                        "INSERT INTO organisation_setting (org_id, bytes, hash, updated_ms) VALUES ($1, $2, $3, $4)
                         ON CONFLICT (org_id) DO UPDATE SET bytes = excluded.bytes, hash = excluded.hash,
                             updated_ms = excluded.updated_ms",
                        org.0,
                        bytes,
                        hash,
                        now,
                    )
                    .execute(&mut **tx)
                    .await?,
                    None => {
                        sqlx::query!("DELETE FROM organisation_setting WHERE org_id = $1", org.0)
                            .execute(&mut **tx)
                            .await?
                    }
                };
                Ok(())
            })
        })
        .await
    }

    /// Publishes the settings that the holder of a Location has read in its files. `false` if `token` is not the
    /// Location's fence, or there is no such Location: then nothing is written. One round trip.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn publish_settings(
        &self,
        at: LocationRef,
        token: FencingToken,
        text: SettingsText,
        now: TimestampMs,
    ) -> Result<bool, StoreError> {
        self.drain_lane()
            .run(move |connection| {
                Box::pin(async move {
                    let is_written = sqlx::query_scalar!(
                        r#"SELECT publish_settings($1, $2, $3, $4, $5, $6) AS "is_written!""#,
                        at.org.0,
                        at.location.as_str(),
                        token.0,
                        text.bytes,
                        text.hash,
                        now,
                    )
                    .fetch_one(&mut *connection)
                    .await?;
                    Ok(is_written)
                })
            })
            .await
    }
}

/// Tells apart what is not there, what the caller knows, and what is new.
fn seen(hash: Option<String>, bytes: Option<String>) -> SettingsSeen {
    match (hash, bytes) {
        (None, _) => SettingsSeen::Nothing,
        (Some(_), None) => SettingsSeen::Known,
        (Some(hash), Some(bytes)) => SettingsSeen::New(SettingsText { bytes, hash }),
    }
}
