use std::fmt;
use std::path::PathBuf;

use super::ClientError;
use crate::profile::{ProfileError, ProfileFile};

/// The URL for a command without `--url` and without a profile.
const DEFAULT_URL: &str = "http://127.0.0.1:4096";

/// The service and the key of a command. Every client subcommand has these options.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Service")]
pub struct ClientOptions {
    /// URL of the service, or its name in the client profile [default: the profile's, else http://127.0.0.1:4096]
    #[arg(long, global = true, env = "OPENCODE_CLOUD_URL", value_name = "URL")]
    pub url: Option<String>,
    /// API key [default: the client profile's for that service]; in the environment rather than here, since other
    /// users see command lines
    #[arg(
        long,
        global = true,
        env = "OPENCODE_CLOUD_KEY",
        value_name = "KEY",
        hide_env_values = true
    )]
    pub key: Option<String>,
}

/// The origin of a client's key, for the error that says how to correct it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// `--key` or `OPENCODE_CLOUD_KEY`.
    Given,
    /// The user of `login`.
    Login,
    /// The client profile in this file.
    Profile(PathBuf),
    /// There is no key. The profile would be in this file.
    None(Option<PathBuf>),
}

/// The service and the key to use.
#[derive(Clone)]
pub struct ServiceAccess {
    /// Without a trailing slash.
    pub url: String,
    /// The key, if there is one.
    pub key: Option<String>,
    /// The origin of the key.
    pub source: KeySource,
}

impl ClientOptions {
    /// Completes the options from the client profile.
    ///
    /// # Errors
    /// When the profile is needed and cannot be read.
    pub fn resolve(&self) -> Result<ServiceAccess, ClientError> {
        self.resolve_with(ProfileFile::of_caller())
    }

    fn resolve_with(
        &self,
        file: Result<ProfileFile, ProfileError>,
    ) -> Result<ServiceAccess, ClientError> {
        let text = |given: &Option<String>| given.clone().filter(|text| !text.trim().is_empty());
        let (url, key) = (text(&self.url), text(&self.key));
        let plain = |url: String| url.trim_end_matches('/').to_owned();
        // The profile is not read if nothing of it is needed.
        if let (Some(url), Some(key)) = (&url, &key)
            && is_url(url)
        {
            let (url, key) = (plain(url.clone()), Some(key.clone()));
            return Ok(ServiceAccess { url, key, source: KeySource::Given });
        }
        let file = file.ok();
        let profile = file.as_ref().map(ProfileFile::read).transpose()?.unwrap_or_default();
        let url = match url {
            Some(name) if !is_url(&name) => match profile.url_of_name(&name) {
                Some(url) => url.to_owned(),
                None => return Err(ClientError::UnknownService { name }),
            },
            url => plain(url.or(profile.url.clone()).unwrap_or_else(|| DEFAULT_URL.to_owned())),
        };
        let path = file.map(|file| file.path().to_owned());
        let (key, source) = match (key, profile.key(&url), path) {
            (Some(key), _, _) => (Some(key), KeySource::Given),
            (None, Some(key), Some(path)) => (Some(key.to_owned()), KeySource::Profile(path)),
            (None, _, path) => (None, KeySource::None(path)),
        };
        Ok(ServiceAccess { url, key, source })
    }
}

/// Returns whether it is meant as a URL, not as a name.
fn is_url(given: &str) -> bool {
    given.contains(':')
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = if self.key.is_some() { "hidden" } else { "none" };
        f.debug_struct("ClientOptions").field("url", &self.url).field("key", &key).finish()
    }
}
