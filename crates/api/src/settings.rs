use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use catalog::Feed;
use domain::ModelRef;

/// How the API answers.
#[derive(Debug, Clone)]
pub struct ApiSettings {
    /// Whether a session may run in a directory of the machine. Only for a service on loopback.
    pub allow_local_paths: bool,
    /// Where a stock client's session runs when it names no directory; `None`: a managed workspace.
    pub default_directory: Option<PathBuf>,
    /// The model of a session that has chosen none.
    pub default_model: ModelRef,
    /// The agent of a session that has chosen none.
    pub default_agent: String,
    /// Our version, as clients are told.
    pub version: String,
    /// Whether answers come from the simulated model; clients are told.
    pub simulated: bool,
    /// How long a request waits for its Revert or Move; the control stays where it is.
    pub hold: Duration,
}

/// The models that a gateway lists.
#[derive(Debug, Clone, Default)]
pub struct ModelList {
    /// The catalog; none: only the default model is listed.
    pub catalog: Option<Arc<Feed>>,
    /// The names of the variables that the environment has for providers, for all organisations: keys, accounts, regions.
    pub keys: BTreeSet<String>,
}
