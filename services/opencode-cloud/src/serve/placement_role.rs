//! A placement member, assembled for both `up` and `opencode-cloud placement`.

use std::path::PathBuf;
use std::sync::Arc;

use domain::Clock;
use placement::{Options, PlacementNode, Timing};
use placement_service::{StoreReadyWork, serve};
use signals::Signals;
use store::Store;
use tasks::TaskGroup;
use tokio::net::TcpListener;

use super::ServeError;

/// The URL of a member that nobody reaches over the network. No host name ends like this (RFC 2606).
const NO_URL: &str = "http://in-process.invalid";

/// The parts of a member.
pub(crate) struct PlacementSetup {
    pub(crate) id: u64,
    pub(crate) data_dir: PathBuf,
    /// The listener for other processes; `None` if there are none.
    pub(crate) internal: Option<Internal>,
    pub(crate) single: bool,
    pub(crate) store: Store,
    /// The login as `oc_migrate`, if the database is our own.
    pub(crate) migrate_url: Option<String>,
    pub(crate) signals: Arc<dyn Signals>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// A member's listener, and the secret that it requires.
pub(crate) struct Internal {
    pub(crate) listener: TcpListener,
    pub(crate) secret: String,
    /// The URL for the other members, if it is not the listener's own address.
    pub(crate) advertise: Option<String>,
}

/// Starts a member in the role's group, and serves its internal routes if it has a listener.
pub(crate) async fn start(
    setup: PlacementSetup,
    role: &TaskGroup,
) -> Result<PlacementNode, ServeError> {
    let generation = setup.store.cluster().await?.generation;
    let (listener, secret, advertise) = match setup.internal {
        Some(Internal { listener, secret, advertise }) => (Some(listener), Some(secret), advertise),
        None => (None, None, Some(NO_URL.to_owned())),
    };
    let address = listener.as_ref().map(TcpListener::local_addr).transpose();
    let address = address
        .map_err(|error| ServeError::stopped("the placement listener has no address", &error))?;
    let advertise_url = match (advertise, address) {
        (Some(url), _) => url,
        // Nobody could reach it at this address; a group of several members has a better one.
        (None, Some(address)) if address.ip().is_unspecified() && !setup.single => String::new(),
        (None, Some(address)) => format!("http://{address}"),
        (None, None) => NO_URL.to_owned(),
    };
    let node = PlacementNode::start(Options {
        id: setup.id,
        data_dir: setup.data_dir,
        advertise_url,
        generation,
        secret,
        single: setup.single,
        timing: Timing::default(),
        clock: setup.clock,
        signals: setup.signals,
        ready_work: Arc::new(StoreReadyWork { store: setup.store, migrate_url: setup.migrate_url }),
        tasks: role.clone(),
    })
    .await
    .map_err(|error| ServeError::stopped("placement cannot start", &error))?;
    if let Some(listener) = listener {
        serve(&node, listener, role);
    }
    Ok(node)
}
