//! Flags for blobs: complete tool outputs, and the packs of snapshots.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use ::blobs::{BlobError, BlobPlace, BlobSettings, Blobs, Probed};
use clap::Args;
use tasks::{OnCancel, OnError, TaskGroup, TaskKind};

use super::ServeError;
use super::egress::EgressArgs;

const PROBE: TaskKind = TaskKind::new("object storage probe", OnError::StopRole, OnCancel::Abort);

/// How often a store that was away at the start is probed.
const PROBE_AGAIN: Duration = Duration::from_secs(10);

/// Where blobs are kept.
#[derive(Clone, Default, Args)]
#[command(next_help_heading = "Object storage")]
pub struct BlobArgs {
    /// Where complete tool outputs and the snapshots of workspaces are kept, the same for all gateways and workers:
    /// file:///FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX. Credentials come from the cloud's
    /// usual variables (AWS_…, GOOGLE_…, AZURE_…) and services [default: `blobs` in the data folder]
    #[arg(long, value_name = "URL", env = "OPENCODE_CLOUD_BLOB_URL")]
    pub blob_url: Option<BlobPlace>,
    /// URL of an object store that is not the cloud's own, such as MinIO
    #[arg(long, value_name = "URL", env = "OPENCODE_CLOUD_BLOB_ENDPOINT")]
    pub blob_endpoint: Option<String>,
    /// Region of the bucket [default: that of AWS_REGION]
    #[arg(long, value_name = "NAME", env = "OPENCODE_CLOUD_BLOB_REGION")]
    pub blob_region: Option<String>,
    /// Id of an access key for S3; at Azure, the account's name
    #[arg(long, value_name = "ID", env = "OPENCODE_CLOUD_BLOB_ACCESS_KEY")]
    pub blob_access_key: Option<String>,
    /// Secret of --blob-access-key
    #[arg(
        long,
        value_name = "SECRET",
        env = "OPENCODE_CLOUD_BLOB_SECRET_KEY",
        hide_env_values = true,
        requires = "blob_access_key"
    )]
    pub blob_secret_key: Option<String>,
}

impl fmt::Debug for BlobArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobArgs")
            .field("blob_url", &self.blob_url.as_ref().map(ToString::to_string))
            .field("blob_endpoint", &self.blob_endpoint)
            .field("blob_region", &self.blob_region)
            .field("has_secret_key", &self.blob_secret_key.is_some())
            .finish_non_exhaustive()
    }
}

impl BlobArgs {
    /// Opens the store, or the folder `blobs` of a data folder, and proves that blobs can be kept there.
    ///
    /// # Errors
    /// When it can never work as it is set up.
    pub(crate) async fn open_or_in(
        &self,
        data: &Path,
        egress: &EgressArgs,
        role: &TaskGroup,
    ) -> Result<Blobs, ServeError> {
        let folder = data.join("blobs");
        let blobs = self.open(Some(BlobPlace::folder(&folder)), egress, role).await?;
        blobs.ok_or_else(|| ServeError::Usage("--blob-url is missing".to_owned()))
    }

    /// Opens the store at --blob-url, or else at `otherwise`; `None` without both.
    ///
    /// # Errors
    /// When it can never work as it is set up. A store that is away is waited for in the background.
    pub(crate) async fn open(
        &self,
        otherwise: Option<BlobPlace>,
        egress: &EgressArgs,
        role: &TaskGroup,
    ) -> Result<Option<Blobs>, ServeError> {
        let Some(place) = self.blob_url.clone().or(otherwise) else { return Ok(None) };
        let blobs = Blobs::open(&self.settings(place, egress)?).map_err(|error| refused(&error))?;
        if let Probed::Away(why) = blobs.probe().await.map_err(|error| refused(&error))? {
            tracing::warn!(
                place = blobs.place(), %why,
                "object storage does not answer; sessions go on, but no file is captured and no long output is kept"
            );
            let later = blobs.clone();
            role.spawn(PROBE, async move {
                loop {
                    tokio::time::sleep(PROBE_AGAIN).await;
                    if later.probe().await? == Probed::Fit {
                        return Ok::<_, BlobError>(());
                    }
                }
            });
        }
        Ok(Some(blobs))
    }

    /// Returns a line for `doctor`.
    pub(crate) async fn told(&self, egress: &EgressArgs) -> String {
        let Some(place) = self.blob_url.clone() else {
            return "blobs     in the data folder, since there is no --blob-url".to_owned();
        };
        let begun = Instant::now();
        let probed = async {
            let blobs = Blobs::open(&self.settings(place.clone(), egress)?);
            let blobs = blobs.map_err(|error| refused(&error))?;
            blobs.probe().await.map_err(|error| refused(&error))
        };
        match probed.await {
            Ok(Probed::Fit) => format!(
                "blobs     yes: {place} keeps, returns and deletes them, and refuses to overwrite ({} ms)",
                begun.elapsed().as_millis()
            ),
            Ok(Probed::Away(why)) => format!("blobs     no: {place} does not answer: {why}"),
            Err::<_, ServeError>(error) => format!("blobs     no: {error}"),
        }
    }

    fn settings(&self, place: BlobPlace, egress: &EgressArgs) -> Result<BlobSettings, ServeError> {
        let variables = std::env::vars_os();
        let variables = variables.filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Ok(BlobSettings {
            endpoint: self.blob_endpoint.clone(),
            region: self.blob_region.clone(),
            access_key: self.blob_access_key.clone(),
            secret_key: self.blob_secret_key.clone(),
            variables: BlobSettings::variables_of(variables),
            ca_bundle: egress.ca_bundle()?,
            ..BlobSettings::at(place)
        })
    }

    /// Returns the same settings as arguments for another process. `data`: the data folder without --blob-url.
    pub(crate) fn words(&self, data: &Path) -> Vec<String> {
        let place = self.blob_url.clone();
        let place = place.unwrap_or_else(|| BlobPlace::folder(&data.join("blobs")));
        let mut words = vec![format!("--blob-url={place}")];
        for (name, value) in [
            ("blob-endpoint", &self.blob_endpoint),
            ("blob-region", &self.blob_region),
            ("blob-access-key", &self.blob_access_key),
        ] {
            words.extend(value.iter().map(|value| format!("--{name}={value}")));
        }
        words
    }

    /// Returns the secret for another process, as an environment variable.
    pub(crate) fn variables(&self) -> Option<(&'static str, String)> {
        self.blob_secret_key.clone().map(|secret| ("OPENCODE_CLOUD_BLOB_SECRET_KEY", secret))
    }
}

fn refused(error: &BlobError) -> ServeError {
    ServeError::stopped("blobs", error)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Probe {
        #[command(flatten)]
        blobs: BlobArgs,
    }

    #[test]
    fn another_process_gets_the_same_place_and_no_secret_word() {
        let read =
            |flags: &[&str]| Probe::try_parse_from([&["probe"], flags].concat()).map(|it| it.blobs);
        let given = read(&[
            "--blob-url=s3://b/p",
            "--blob-endpoint=http://h",
            "--blob-access-key=id",
            "--blob-secret-key=CANARY",
        ])
        .expect("flags");
        let words = given.words(Path::new("/data"));
        assert_eq!(
            words,
            ["--blob-url=s3://b/p", "--blob-endpoint=http://h", "--blob-access-key=id"]
        );
        assert_eq!(given.variables().map(|(_, secret)| secret).as_deref(), Some("CANARY"));
        assert!(!format!("{given:?}").contains("CANARY"));
        let none = read(&[]).expect("no flags");
        assert_eq!(none.words(Path::new("/data")), ["--blob-url=file:///data/blobs"]);
        assert!(read(&["--blob-secret-key=x"]).is_err(), "of which key?");
        let error = read(&["--blob-url=/srv"]).expect_err("no URL").to_string();
        assert!(error.contains("file:///srv"), "{error}");
    }
}
