//! A placement member, from parts that `up` and `opencode-cloud placement` both have.

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

/// What a member is assembled from.
pub(crate) struct PlacementSetup {
    pub(crate) id: u64,
    pub(crate) data_dir: PathBuf,
    pub(crate) listener: TcpListener,
    pub(crate) secret: Option<String>,
    pub(crate) single: bool,
    pub(crate) store: Store,
    pub(crate) signals: Arc<dyn Signals>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Starts a member in the role's group and serves its internal routes.
pub(crate) async fn start(
    setup: PlacementSetup,
    role: &TaskGroup,
) -> Result<PlacementNode, ServeError> {
    let generation = setup.store.cluster().await?.generation;
    let address = setup
        .listener
        .local_addr()
        .map_err(|error| ServeError::stopped("the placement listener has no address", &error))?;
    let node = PlacementNode::start(Options {
        id: setup.id,
        data_dir: setup.data_dir,
        advertise_url: format!("http://{address}"),
        generation,
        secret: setup.secret,
        single: setup.single,
        timing: Timing::default(),
        clock: setup.clock,
        signals: setup.signals,
        ready_work: Arc::new(StoreReadyWork(setup.store)),
        tasks: role.clone(),
    })
    .await
    .map_err(|error| ServeError::stopped("placement cannot start", &error))?;
    serve(&node, setup.listener, role);
    Ok(node)
}
