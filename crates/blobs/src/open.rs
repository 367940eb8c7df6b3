//! Opens the store at a place, with the time limits of its requests.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path as StorePath;
use object_store::{BackoffConfig, Certificate, ClientOptions, ObjectStore, RetryConfig};

use crate::error::Cause;
use crate::guard::Guard;
use crate::place::{BlobPlace, BucketStore};
use crate::{BlobError, Blobs};

/// The settings of a store.
#[derive(Clone)]
pub struct BlobSettings {
    /// The folder or bucket.
    pub place: BlobPlace,
    /// The URL of a store that is not the cloud's own.
    pub endpoint: Option<String>,
    /// The region of a bucket at S3.
    pub region: Option<String>,
    /// The id of an access key for S3, or the name of an account at Azure.
    pub access_key: Option<String>,
    /// Its secret, or the account's key.
    pub secret_key: Option<String>,
    /// Variables of the environment by their usual names, such as `AWS_REGION`. Others than [`variables`] are ignored.
    ///
    /// [`variables`]: BlobSettings::variables_of
    pub variables: BTreeMap<String, String>,
    /// Certificates in PEM that are believed beside the system's.
    pub ca_bundle: Option<Vec<u8>>,
    /// The time limits of requests.
    pub pace: Pace,
}

/// The time limits of requests to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The longest time for a connection.
    pub connect: Duration,
    /// The longest time for a request with its answer.
    pub request: Duration,
    /// The longest silence within an answer.
    pub silence: Duration,
    /// How often a request is repeated, within [`Pace::patience`].
    pub retries: usize,
    /// The pause before the first repetition; it grows up to [`Pace::longest_pause`].
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
    /// The time after which nothing is repeated any more.
    pub patience: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            request: Duration::from_secs(30),
            silence: Duration::from_secs(10),
            retries: 4,
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(2),
            patience: Duration::from_secs(15),
        }
    }
}

/// The usual variables of each cloud that count. The others of the libraries' own would turn off what we rely on.
const VARIABLES: [&str; 26] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_SERVER_SIDE_ENCRYPTION",
    "AWS_SSE_KMS_KEY_ID",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_TENANT_ID",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE",
];

impl BlobSettings {
    /// Returns the settings of a place without anything else.
    #[must_use]
    pub fn at(place: BlobPlace) -> Self {
        Self {
            place,
            endpoint: None,
            region: None,
            access_key: None,
            secret_key: None,
            variables: BTreeMap::new(),
            ca_bundle: None,
            pace: Pace::default(),
        }
    }

    /// Returns the variables that count, of all in an environment.
    pub fn variables_of(
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> BTreeMap<String, String> {
        let counts = |(name, value): &(String, String)| {
            VARIABLES.contains(&name.as_str()) && !value.is_empty()
        };
        environment.into_iter().filter(counts).collect()
    }

    /// Returns the settings of our flags, which come before those of the environment.
    fn options(&self) -> impl Iterator<Item = (&str, &String)> {
        let variables = self.variables.iter().map(|(name, value)| (name.as_str(), value));
        variables.filter(|(name, _)| VARIABLES.contains(name))
    }

    fn retries(&self) -> RetryConfig {
        let Pace { retries, first_pause, longest_pause, patience, .. } = self.pace;
        RetryConfig {
            backoff: BackoffConfig {
                init_backoff: first_pause,
                max_backoff: longest_pause,
                base: 2.,
            },
            max_retries: retries,
            retry_timeout: patience,
        }
    }

    fn client(&self) -> Result<ClientOptions, object_store::Error> {
        let Pace { connect, request, silence, .. } = self.pace;
        let mut options = ClientOptions::new()
            .with_connect_timeout(connect)
            .with_timeout(request)
            .with_read_timeout(silence)
            .with_allow_http(self.is_plain());
        if let Some(bundle) = &self.ca_bundle {
            for certificate in Certificate::from_pem_bundle(bundle)? {
                options = options.with_root_certificate(certificate);
            }
        }
        Ok(options)
    }

    /// Returns whether the endpoint, which only the operator chooses, is without TLS.
    fn is_plain(&self) -> bool {
        let variables = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"];
        let variables = variables.iter().filter_map(|name| self.variables.get(*name));
        self.endpoint.iter().chain(variables).any(|url| url.starts_with("http://"))
    }
}

impl fmt::Debug for BlobSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobSettings")
            .field("place", &self.place.to_string())
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("has_secret_key", &self.secret_key.is_some())
            .field("variables", &self.variables.keys())
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

impl Blobs {
    /// Opens the store at a place. Makes a folder if it is missing; sends no request to a bucket.
    ///
    /// # Errors
    /// [`BlobError::Setup`] when the folder cannot be made, or the settings cannot be right.
    pub fn open(settings: &BlobSettings) -> Result<Self, BlobError> {
        let shown = settings.place.to_string();
        let refused = |error: object_store::Error| BlobError::Setup {
            place: shown.clone(),
            source: Cause::of(&error),
        };
        let (store, root): (Arc<dyn ObjectStore>, _) = match &settings.place {
            BlobPlace::Folder(folder) => return Self::in_folder(folder),
            BlobPlace::Bucket { store, bucket, prefix } => {
                let store: Arc<dyn ObjectStore> = match store {
                    BucketStore::S3 => Arc::new(s3(settings, bucket).map_err(refused)?),
                    BucketStore::Gcs => Arc::new(gcs(settings, bucket).map_err(refused)?),
                    BucketStore::Azure => Arc::new(azure(settings, bucket).map_err(refused)?),
                };
                (store, StorePath::from(prefix.as_str()))
            }
        };
        Ok(Self { store, root, guard: Arc::new(Guard::new(shown, true)) })
    }

    /// Stores blobs below `folder`, which is created if missing.
    ///
    /// # Errors
    /// [`BlobError::Setup`] when it cannot be made.
    pub fn in_folder(folder: &Path) -> Result<Self, BlobError> {
        let place = folder.display().to_string();
        let failed = |source| BlobError::Setup { place: place.clone(), source };
        // Closed to other users whatever the umask, because it contains prompts and results.
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| failed(error.into()))?;
        let store = LocalFileSystem::new_with_prefix(folder)
            .map_err(|error| failed(Cause::of(&error)))?
            .with_fsync(true);
        let guard = Arc::new(Guard::new(place, false));
        Ok(Self { store: Arc::new(store), root: StorePath::default(), guard })
    }

    /// Wraps any store, to count or fail its requests in tests.
    #[doc(hidden)]
    #[must_use]
    pub fn over(store: Arc<dyn ObjectStore>, place: &str) -> Self {
        let guard = Arc::new(Guard::new(place.to_owned(), true));
        Self { store, root: StorePath::default(), guard }
    }
}

fn s3(settings: &BlobSettings, bucket: &str) -> object_store::Result<impl ObjectStore + use<>> {
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_retry(settings.retries())
        .with_client_options(settings.client()?)
        // Blobs are deleted one by one, and not every store has the other request.
        .with_config(AmazonS3ConfigKey::DisableBulkDelete, "true");
    for (name, value) in settings.options() {
        if let Ok(key) = name.to_ascii_lowercase().parse() {
            builder = builder.with_config(key, value);
        }
    }
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(region) = &settings.region {
        builder = builder.with_region(region);
    }
    if let Some(key) = &settings.access_key {
        builder = builder.with_access_key_id(key);
    }
    if let Some(secret) = &settings.secret_key {
        builder = builder.with_secret_access_key(secret);
    }
    builder.build()
}

fn gcs(settings: &BlobSettings, bucket: &str) -> object_store::Result<impl ObjectStore + use<>> {
    let mut builder = GoogleCloudStorageBuilder::new()
        .with_bucket_name(bucket)
        .with_retry(settings.retries())
        .with_client_options(settings.client()?);
    for (name, value) in settings.options() {
        if let Ok(key) = name.to_ascii_lowercase().parse() {
            builder = builder.with_config(key, value);
        }
    }
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_config(GoogleConfigKey::BaseUrl, endpoint);
    }
    builder.build()
}

fn azure(settings: &BlobSettings, bucket: &str) -> object_store::Result<impl ObjectStore + use<>> {
    let mut builder = MicrosoftAzureBuilder::new()
        .with_container_name(bucket)
        .with_retry(settings.retries())
        .with_client_options(settings.client()?);
    for (name, value) in settings.options() {
        if let Ok(key) = name.to_ascii_lowercase().parse::<AzureConfigKey>() {
            builder = builder.with_config(key, value);
        }
    }
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    if let Some(account) = &settings.access_key {
        builder = builder.with_account(account);
    }
    if let Some(key) = &settings.secret_key {
        builder = builder.with_access_key(key);
    }
    builder.build()
}
