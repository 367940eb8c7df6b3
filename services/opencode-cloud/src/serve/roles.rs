//! Each role as its own process, for a cluster.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::Origins;
use boot::default_data_dir;
use clap::Args;
use domain::{Clock, SystemClock};
use jiff::tz::TimeZone;
use placement_api::{HttpPlacement, Placement};
use placement_service::probe_routes;
use signals::{Dropping, Nats, Signals};
use store::{Store, StoreError, StoreOptions};
use tasks::{CancellationToken, OnCancel, OnError, TaskGroup, TaskKind};
use tokio::time::Instant;

use super::ServeError;
use super::args::{ClusterArgs, DataArgs, Disk, DrainArgs, ListenArgs, ModelArgs};
use super::blobs::BlobArgs;
use super::bootstrap::{self, give_key};
use super::catalog::{CatalogArgs, environment};
use super::disk::{ReserveArgs, UploadArgs};
use super::egress::EgressArgs;
use super::gateway_role::{self, GatewaySetup, check_local_paths};
use super::metrics::MetricsArgs;
use super::model::models;
use super::period;
use super::placement_role::{self, Internal, PlacementSetup};
use super::reports::ReportArgs;
use super::secrets::{self, SecretsArgs};
use super::traces::TraceArgs;
use super::up::{check_level, check_schema};
use super::worker_role::{self, StartedWorker, WorkerSetup};

const HEALTH: TaskKind = TaskKind::new("health listener", OnError::StopRole, OnCancel::Wait);

/// Arguments of `gateway`.
#[derive(Debug, Clone, Args)]
pub struct GatewayArgs {
    /// The address for clients.
    #[command(flatten)]
    pub listen: ListenArgs,
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// The default model of sessions.
    #[command(flatten)]
    pub model: ModelArgs,
    /// The other models.
    #[command(flatten)]
    pub catalog: CatalogArgs,
    /// A key for clients, of at least 20 characters
    #[arg(long, value_name = "KEY", env = "OPENCODE_CLOUD_BOOTSTRAP_KEY", hide_env_values = true)]
    pub bootstrap_key: Option<String>,
    /// The keys that seal credentials.
    #[command(flatten)]
    pub secrets: SecretsArgs,
    /// The addresses that requests may go to.
    #[command(flatten)]
    pub egress: EgressArgs,
    /// Directory for stock clients that name none; only with --allow-local-paths
    #[arg(long, value_name = "DIR", env = "OPENCODE_CLOUD_DIRECTORY")]
    pub directory: Option<PathBuf>,
    /// The workers' tool outputs and snapshots: without them it has no exact diffs, exports and imports.
    #[command(flatten)]
    pub blobs: BlobArgs,
    /// Folder for uploads and imports that are being sent; a gateway has its own [default: below the user's data folder]
    #[arg(long, help_heading = "Data", value_name = "DIR", env = "OPENCODE_CLOUD_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// How much these take.
    #[command(flatten)]
    pub uploads: UploadArgs,
    /// The space of disks that is left free.
    #[command(flatten)]
    pub reserve: ReserveArgs,
    /// The metrics of the process.
    #[command(flatten)]
    pub metrics: MetricsArgs,
    /// The traces of the process.
    #[command(flatten)]
    pub traces: TraceArgs,
    /// The reports of its errors.
    #[command(flatten)]
    pub reports: ReportArgs,
}

/// Arguments of `worker`.
#[derive(Debug, Clone, Args)]
pub struct WorkerArgs {
    /// Port of the internal listener; 0 takes a free one
    #[arg(long, value_name = "N", default_value_t = 4201, env = "OPENCODE_CLOUD_PORT")]
    pub port: u16,
    /// Address of the internal listener
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), env = "OPENCODE_CLOUD_BIND")]
    pub bind: IpAddr,
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// The folders for data.
    #[command(flatten)]
    pub data: DataArgs,
    /// The default model of sessions.
    #[command(flatten)]
    pub model: ModelArgs,
    /// The other models.
    #[command(flatten)]
    pub catalog: CatalogArgs,
    /// Let sessions run in any directory of this machine: only where those who may prompt may do that anyway
    #[arg(long, env = "OPENCODE_CLOUD_ALLOW_LOCAL_PATHS")]
    pub allow_local_paths: bool,
    /// The machine's name, for `placement drain`
    #[arg(long, value_name = "NAME", default_value = "worker", env = "OPENCODE_CLOUD_NODE")]
    pub node: String,
    /// Let running turns, with their commands, take this long to reach a boundary once the worker is stopped: seconds, or
    /// such as 30m. What runs longer is cut and goes on elsewhere
    #[arg(
        long,
        value_name = "TIME",
        value_parser = period::length,
        default_value = "20",
        env = "OPENCODE_CLOUD_STOP_GRACE"
    )]
    pub stop_grace: Duration,
    /// The way sessions run.
    #[command(flatten)]
    pub drains: DrainArgs,
    /// The metrics of the process.
    #[command(flatten)]
    pub metrics: MetricsArgs,
    /// The traces of the process.
    #[command(flatten)]
    pub traces: TraceArgs,
    /// The reports of its errors.
    #[command(flatten)]
    pub reports: ReportArgs,
    /// The keys that seal credentials.
    #[command(flatten)]
    pub secrets: SecretsArgs,
    /// The addresses that requests may go to.
    #[command(flatten)]
    pub egress: EgressArgs,
}

/// Arguments of `placement serve`.
#[derive(Debug, Clone, Args)]
pub struct PlacementArgs {
    /// This member's number, from 1; it never changes and is never used again
    #[arg(long, value_name = "N", env = "OPENCODE_CLOUD_PLACEMENT_ID")]
    pub id: u64,
    /// Port of the internal listener
    #[arg(long, value_name = "N", default_value_t = 4301, env = "OPENCODE_CLOUD_PORT")]
    pub port: u16,
    /// Address of the internal listener
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), env = "OPENCODE_CLOUD_BIND")]
    pub bind: IpAddr,
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// The metrics of the process.
    #[command(flatten)]
    pub metrics: MetricsArgs,
    /// Folder for the member's log
    #[arg(long, value_name = "DIR", env = "OPENCODE_CLOUD_DATA_DIR")]
    pub data_dir: PathBuf,
    /// URL at which the other members reach this one, as `placement init` or `add` names it, where that is not the
    /// address of the listener (--bind 0.0.0.0, a NAT)
    #[arg(long, value_name = "URL", env = "OPENCODE_CLOUD_PLACEMENT_ADVERTISE")]
    pub advertise: Option<String>,
    /// Found a group of this one member, unless it belongs to one already
    #[arg(long)]
    pub single: bool,
}

/// The common beginning of every role.
struct Common {
    store: Store,
    signals: Arc<dyn Signals>,
    clock: Arc<dyn Clock>,
}

/// How often a role asks a database that does not answer yet.
const DATABASE_LOOK: Duration = Duration::from_millis(250);
/// How long a role waits for its database at its start. A supervisor would have to wait as well.
const DATABASE_PATIENCE: Duration = Duration::from_secs(60);

/// Returns the schema's version once the database accepts connections. A database that starts, recovers from a crash
/// or cannot be reached accepts none for a while. A role that gave up would be restarted again and again, each time
/// later. Any other failure returns at once.
async fn schema_version(url: &str, stop: &CancellationToken) -> Result<i64, ServeError> {
    until_it_answers(async || store::schema_version(url).await, stop, DATABASE_PATIENCE).await
}

async fn until_it_answers(
    ask: impl AsyncFn() -> Result<i64, StoreError>,
    stop: &CancellationToken,
    patience: Duration,
) -> Result<i64, ServeError> {
    let until = Instant::now() + patience;
    let mut told = false;
    loop {
        match ask().await {
            Err(error) if error.may_pass() && !stop.is_cancelled() && Instant::now() < until => {
                if !told {
                    let why = ServeError::from(error);
                    tracing::warn!(%why, patience_s = patience.as_secs(), "waiting for the database");
                }
                told = true;
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(DATABASE_LOOK) => {}
                }
            }
            answer => return Ok(answer?),
        }
    }
}

impl Common {
    async fn connect(args: &ClusterArgs, stop: &CancellationToken) -> Result<Self, ServeError> {
        let options = StoreOptions::new(args.database_url.clone());
        let sched = store::role_url(&options.url, "oc_sched", None)?;
        check_schema(schema_version(&sched, stop).await?)?;
        let store = Store::connect(&options)?;
        check_level(store.feature_level().await?)?;
        let nats = Nats::connect(&args.nats_url, &args.cluster)
            .await
            .map_err(|error| ServeError::stopped("NATS", &error))?;
        let mut signals: Arc<dyn Signals> = Arc::new(nats);
        if args.drop_signals > 0.0 {
            signals = Arc::new(Dropping::wrap(signals, args.drop_signals));
        }
        let clock = Arc::new(SystemClock::new());
        Ok(Self { store, signals, clock })
    }

    fn placement(&self, args: &ClusterArgs) -> Arc<dyn Placement> {
        Arc::new(HttpPlacement::new(args.placement_peers.clone(), args.cluster_secret.clone()))
    }
}

/// Binds an internal listener. Beyond loopback it requires the cluster's secret.
async fn internal(
    bind: IpAddr,
    port: u16,
    secret: Option<&String>,
) -> Result<tokio::net::TcpListener, ServeError> {
    if !bind.is_loopback() && secret.is_none() {
        return Err(ServeError::Usage(format!(
            "an internal listener on {bind} needs --cluster-secret, the same one for all roles"
        )));
    }
    Ok(boot::listen(SocketAddr::new(bind, port)).await?)
}

async fn until_stopped(stop: &CancellationToken, root: &TaskGroup) -> Result<u8, ServeError> {
    tokio::select! {
        () = stop.cancelled() => Ok(0),
        failure = root.failed() => Err(ServeError::Stopped(failure.to_string())),
    }
}

/// Runs a gateway until it is stopped.
///
/// # Errors
/// [`ServeError`], on one line with its fix.
pub async fn gateway(args: GatewayArgs, stop: CancellationToken) -> Result<u8, ServeError> {
    let given = bootstrap::given(args.bootstrap_key.as_deref())?;
    let address = SocketAddr::new(args.listen.bind, args.listen.port);
    check_local_paths(args.listen.allow_local_paths, address)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let tls = args.listen.tls.open(&clock)?;
    let listener = boot::listen(address).await?;
    let data = args.data_dir.clone().unwrap_or_else(|| default_data_dir().join("gateway"));
    let spools = args.uploads.spools(&data, args.reserve.room())?;
    let common = Common::connect(&args.cluster, &stop).await?;
    if let Some(key) = given {
        give_key(&common.store, &*common.clock, key).await?;
    }
    let (store, clock) = (common.store.clone(), common.clock.clone());
    let keys = args.secrets.keys()?;
    let egress = args.egress.egress()?;
    let root = TaskGroup::root("gateway");
    args.metrics.serve("gateway", &root).await?;
    args.traces.start("gateway", &root)?;
    let _reports = args.reports.start("gateway")?;
    let feed = args.catalog.feed(&egress, &common.store, &common.clock, &root).await?;
    let known = Some(feed.clone());
    let credentials = secrets::credentials(store, keys, egress.clone(), known, clock);
    let mut model = models(&args.model, &feed.current(), &egress).await?;
    if let Some(pending) = model.pending.take() {
        pending.resolve(&root);
    }
    let keys = environment(&args.model).into_keys().collect();
    let site = gateway_role::site(&common.store, &args.listen, listener.local_addr().ok()).await?;
    let blobs = args.blobs.open(None, &args.egress, &root).await?;
    let gateway = gateway_role::start(
        GatewaySetup {
            listener,
            tls,
            placement: common.placement(&args.cluster),
            blobs,
            // Its machine has no worker, so that nothing of sessions' directories is here.
            checkouts: None,
            store: common.store.clone(),
            signals: common.signals,
            credentials,
            models: api::ModelList { catalog: Some(feed), keys },
            clock: common.clock,
            allow_local_paths: args.listen.allow_local_paths,
            default_directory: args.directory.filter(|_| args.listen.allow_local_paths),
            proxies: args.listen.proxies(),
            origins: Origins(args.listen.cors_origin),
            site,
            default_model: model.default_model(),
            spools,
            upload_quota: args.uploads.quota(),
        },
        &root,
    )?;
    let ended = until_stopped(&stop, &root).await;
    gateway.shutdown().await;
    root.shutdown(Duration::from_secs(2)).await;
    common.store.close().await;
    ended
}

/// Runs a worker until it is stopped.
///
/// # Errors
/// [`ServeError`], on one line with its fix.
pub async fn worker(args: WorkerArgs, stop: CancellationToken) -> Result<u8, ServeError> {
    args.drains.network.check_hosts()?;
    let listener = internal(args.bind, args.port, args.cluster.cluster_secret.as_ref()).await?;
    let address = listener
        .local_addr()
        .map_err(|error| ServeError::stopped("the internal listener has no address", &error))?;
    let keys = args.secrets.keys()?;
    let common = Common::connect(&args.cluster, &stop).await?;
    let (store, clock) = (common.store.clone(), common.clock.clone());
    let egress = args.egress.egress()?;
    let root = TaskGroup::root("worker");
    args.metrics.serve("worker", &root).await?;
    args.traces.start("worker", &root)?;
    let _reports = args.reports.start("worker")?;
    let catalog = args.catalog.feed(&egress, &common.store, &common.clock, &root).await?;
    let known = Some(catalog.clone());
    let credentials = secrets::credentials(store, keys, egress.clone(), known, clock);
    let mut model = models(&args.model, &catalog.current(), &egress).await?;
    if let Some(pending) = model.pending.take() {
        pending.resolve(&root);
    }
    let data = args.data.data_dir.clone().unwrap_or_else(default_data_dir);
    if args.data.workspace_disk == Disk::Own && args.data.blobs.blob_url.is_none() {
        return Err(ServeError::Usage(
            "--workspace-disk own needs --blob-url: the snapshots from which another worker restores a workspace must \
             be where all workers see them"
                .to_owned(),
        ));
    }
    let blobs = args.data.blobs.open_or_in(&data, &args.egress, &root).await?;
    let StartedWorker { worker, told, .. } = worker_role::start(
        WorkerSetup {
            blobs,
            placement: common.placement(&args.cluster),
            store: common.store.clone(),
            signals: common.signals,
            clock: common.clock,
            llm: model.client,
            models: model.configured,
            catalog,
            env: environment(&args.model),
            credentials,
            egress,
            settings: args.drains.settings(TimeZone::UTC)?,
            folders: args.data.folders(&data),
            disk: args.data.workspace_disk.into(),
            blob_retention: args.data.blob_retention.length(),
            repository_copies: args.data.repository_copies(),
            node: args.node,
            url: format!("http://{address}"),
            slots: args.drains.slots,
            // It does not know where its gateways listen.
            commands: args.drains.commands(false),
            pages: args.drains.network.pages(&args.egress)?,
            ways: args.drains.network.exits(&args.egress)?,
            allow_local_paths: args.allow_local_paths,
            hidden: args
                .drains
                .hidden
                .paths(args.data.folders(&data).all().into_iter().chain([data])),
        },
        &root,
    )
    .await?;
    tracing::info!("{told}");
    let readiness = worker.readiness();
    let router = probe_routes(move || readiness.why_unready());
    let closing = root.token();
    root.spawn(HEALTH, async move {
        axum::serve(listener, router).with_graceful_shutdown(closing.cancelled_owned()).await
    });
    let ended = until_stopped(&stop, &root).await;
    worker.shutdown(args.stop_grace).await;
    root.shutdown(Duration::from_secs(2)).await;
    common.store.close().await;
    ended
}

/// Runs a placement member until it is stopped.
///
/// # Errors
/// [`ServeError`], on one line with its fix.
pub async fn placement(args: PlacementArgs, stop: CancellationToken) -> Result<u8, ServeError> {
    let secret = args.cluster.cluster_secret.clone().filter(|secret| !secret.is_empty());
    let secret = secret.ok_or_else(|| {
        // Required on loopback too, where tools and other users of this machine reach placement.
        ServeError::Usage(
            "placement needs --cluster-secret, the same one for all roles; make one with `openssl rand -hex 24`"
                .to_owned(),
        )
    })?;
    let listener = internal(args.bind, args.port, Some(&secret)).await?;
    let common = Common::connect(&args.cluster, &stop).await?;
    let root = TaskGroup::root("placement");
    args.metrics.serve("placement", &root).await?;
    let node = placement_role::start(
        PlacementSetup {
            id: args.id,
            data_dir: args.data_dir,
            internal: Some(Internal { listener, secret, advertise: args.advertise }),
            single: args.single,
            store: common.store.clone(),
            migrate_url: None,
            signals: common.signals,
            clock: common.clock,
        },
        &root,
    )
    .await?;
    let ended = until_stopped(&stop, &root).await;
    node.shutdown().await;
    root.shutdown(Duration::from_secs(2)).await;
    common.store.close().await;
    ended
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const NEVER: Duration = Duration::from_hours(1);

    /// Finding cluster 10: a role that started before its database listened gave up.
    #[tokio::test]
    async fn a_role_waits_for_a_database_that_does_not_listen_yet() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let (asked, stop) = (AtomicU32::new(0), CancellationToken::new());
        let version = until_it_answers(
            async || {
                if asked.fetch_add(1, Ordering::SeqCst) > 1 {
                    return Ok(7);
                }
                // Nobody listens, so the connection is refused.
                store::schema_version(&format!("postgres://oc_sched@{address}/oc")).await
            },
            &stop,
            NEVER,
        );
        assert_eq!(version.await.expect("an answer at last"), 7);
        assert_eq!(asked.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_role_waits_for_its_database_no_longer_than_it_says() {
        let timed_out =
            || StoreError::Database(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
        let stop = CancellationToken::new();
        let late = until_it_answers(async || Err(timed_out()), &stop, Duration::from_millis(300));
        assert!(late.await.is_err());
        stop.cancel();
        let stopped = until_it_answers(async || Err(timed_out()), &stop, NEVER);
        assert!(stopped.await.is_err());
        let wrong = async || Err(StoreError::Schema("the URL is wrong".into()));
        let told = until_it_answers(wrong, &CancellationToken::new(), NEVER).await;
        assert!(told.is_err_and(|error| error.to_string().contains("wrong")));
    }
}
