use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use catalog::Feed;

use crate::default_model::DefaultModel;
use crate::origin::Origins;
use crate::site::Site;

/// The settings of the API.
#[derive(Debug, Clone)]
pub struct ApiSettings {
    /// Whether a session may run in a directory of this machine. Only for a service on loopback.
    pub allow_local_paths: bool,
    /// The directory of a stock client's session that names none; `None` means a managed workspace.
    pub default_directory: Option<PathBuf>,
    /// The model of a session that has not chosen one.
    pub default_model: DefaultModel,
    /// The agent of a session that has not chosen one.
    pub default_agent: String,
    /// The origins whose pages may call the API from a browser.
    pub origins: Origins,
    /// How browsers know the service.
    pub site: Site,
    /// Our version, shown to clients.
    pub version: String,
    /// Whether the simulated model answers, shown to clients.
    pub simulated: bool,
    /// How long a request waits for its Revert or Move. After that the control stays in the inbox.
    pub hold: Duration,
    /// The most bytes that an organisation's uploads may have in storage.
    pub upload_quota: u64,
}

/// The models that a gateway lists.
#[derive(Debug, Clone, Default)]
pub struct ModelList {
    /// The catalog; without one, only the default model is listed.
    pub catalog: Option<Arc<Feed>>,
    /// Names of the environment's variables for providers, for all organisations: keys, accounts, regions.
    pub keys: BTreeSet<String>,
}
