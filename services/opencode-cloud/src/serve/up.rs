//! `up` and `serve`: all roles in one process, with its own Postgres.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::Origins;
use boot::{DataDir, Postgres, PostgresOptions, default_data_dir, ensure_free_space};
use clap::Args;
use cli::output::Screen;
use credentials::Credentials;
use domain::{Clock, FeatureLevel, OrgId, SystemClock};
use egress::Egress;
use gateway::Tls;
use jiff::tz::TimeZone;
use signals::{InProcess, Signals};
use store::{NewKey, RolePasswords, Store, StoreOptions};
use tasks::{CancellationToken, TaskGroup};
use tokio::net::TcpListener;

use super::ServeError;
use super::args::{DataArgs, DrainArgs, ListenArgs, ModelArgs};
use super::bootstrap::{self, first_owner, login_url};
use super::catalog::{CatalogArgs, environment};
use super::disk::UploadArgs;
use super::egress::EgressArgs;
use super::gateway_role::{self, GatewaySetup, check_local_paths};
use super::greeting::{self, Greeting};
use super::metrics::MetricsArgs;
use super::model::{check_named, missing_key, models};
use super::placement_role::{self, PlacementSetup};
use super::reports::ReportArgs;
use super::secrets::{self, SecretsArgs};
use super::traces::TraceArgs;
use super::worker_role::{self, StartedWorker, WorkerSetup};

/// The free disk space, in bytes, below which Postgres would soon fail.
const MIN_FREE_BYTES: u64 = 256 * 1024 * 1024;

/// How long running turns may take to reach a boundary when the service stops.
const GRACE: Duration = Duration::from_secs(5);

/// Arguments of `up` and `serve`.
#[derive(Debug, Clone, Args)]
pub struct UpArgs {
    /// The address for clients.
    #[command(flatten)]
    pub listen: ListenArgs,
    /// The folders for data.
    #[command(flatten)]
    pub data: DataArgs,
    /// The default model of sessions.
    #[command(flatten)]
    pub model: ModelArgs,
    /// The other models.
    #[command(flatten)]
    pub catalog: CatalogArgs,
    /// Use this Postgres instead of one of our own; provision it with `opencode-cloud migrate`
    #[arg(
        long,
        help_heading = "Data",
        value_name = "URL",
        env = "OPENCODE_CLOUD_DATABASE_URL",
        hide_env_values = true
    )]
    pub database_url: Option<String>,
    /// Another API key, of at least 20 characters [default: one is made at the first start, for the client profile]
    #[arg(
        long,
        help_heading = "Keys and secrets",
        value_name = "KEY",
        env = "OPENCODE_CLOUD_BOOTSTRAP_KEY",
        hide_env_values = true
    )]
    pub bootstrap_key: Option<String>,
    /// The keys that seal credentials.
    #[command(flatten)]
    pub secrets: SecretsArgs,
    /// The addresses that requests may go to.
    #[command(flatten)]
    pub egress: EgressArgs,
    /// The service is for others too, as behind a reverse proxy: sessions do not run in any directory of this machine, and
    /// organisations do not reach what only this machine reaches, unless other flags say so; implied beyond loopback
    #[arg(long, env = "OPENCODE_CLOUD_SHARED")]
    pub shared: bool,
    /// The way sessions run.
    #[command(flatten)]
    pub drains: DrainArgs,
    /// How much uploads take.
    #[command(flatten)]
    pub uploads: UploadArgs,
    /// The metrics of the process.
    #[command(flatten)]
    pub metrics: MetricsArgs,
    /// The traces of the process.
    #[command(flatten)]
    pub traces: TraceArgs,
    /// The reports of its errors.
    #[command(flatten)]
    pub reports: ReportArgs,
    /// Directory for stock clients that name none [default: the current one]
    #[arg(long, help_heading = "Sessions", value_name = "DIR", env = "OPENCODE_CLOUD_DIRECTORY")]
    pub directory: Option<PathBuf>,
}

impl UpArgs {
    /// Returns whether only the user who runs the service can reach it. `up` assumes that on loopback. It cannot see
    /// a reverse proxy in front of it, hence --shared.
    fn is_for_one_user(&self) -> bool {
        !self.shared && self.listen.bind.is_loopback()
    }
}

/// Whether the greeting says what to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hints {
    /// `up`
    Shown,
    /// `serve`
    Left,
}

/// Runs the service until SIGINT or SIGTERM, and returns the exit code.
///
/// # Errors
/// [`ServeError`], on one line with its fix.
pub async fn execute(
    args: UpArgs,
    hints: Hints,
    stop: CancellationToken,
    screen: &mut Screen,
) -> Result<u8, ServeError> {
    let given = bootstrap::given(args.bootstrap_key.as_deref())?;
    args.drains.network.check_hosts()?;
    // An unknown model is refused before anything is started or created.
    if args.catalog.catalog_url.is_none() {
        check_named(&args.model, &catalog::shipped())?;
    }
    let folder = args.data.data_dir.clone().unwrap_or_else(default_data_dir);
    let data = DataDir::open(&folder)?;
    ensure_free_space(data.path(), MIN_FREE_BYTES)?;
    let address = SocketAddr::new(args.listen.bind, args.listen.port);
    let alone = args.is_for_one_user();
    let local = args.listen.allow_local_paths || alone;
    check_local_paths(local, address)?;
    let egress_private = args.egress.egress_private || alone;
    let egress = EgressArgs { egress_private, ..args.egress.clone() }.egress()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let tls = args.listen.tls.open(&clock)?;
    let listener = boot::listen(address).await?;
    let mut progress = Progress { screen, hints };

    let (postgres, options) = match &args.database_url {
        Some(url) => (None, StoreOptions::new(url.clone())),
        None => {
            progress.say("starting Postgres");
            let (postgres, options) = own_postgres(&data, |text| progress.say(text)).await?;
            (Some(postgres), options)
        }
    };
    let place = Place {
        data: &data,
        address,
        local,
        egress,
        listener,
        tls,
        clock,
        given,
        options,
        postgres: postgres.as_ref(),
    };
    let served = serve(&args, place, &stop, &mut progress).await;
    // Also if the service could not start: a refusal leaves no process behind.
    if let Some(postgres) = postgres {
        postgres.stop().await;
    }
    if served.is_ok() {
        progress.say("stopped; everything is kept in the data folder");
    }
    drop(data);
    served
}

/// The surroundings of the roles.
struct Place<'p> {
    data: &'p DataDir,
    address: SocketAddr,
    /// Whether sessions may run in any directory of this machine.
    local: bool,
    egress: Egress,
    listener: TcpListener,
    /// The certificate of `--tls-cert`.
    tls: Option<Tls>,
    clock: Arc<dyn Clock>,
    /// The key of `--bootstrap-key`.
    given: Option<NewKey>,
    options: StoreOptions,
    /// Our own Postgres, if it is our own.
    postgres: Option<&'p Postgres>,
}

/// Runs the roles until the service must stop or one of them fails.
async fn serve(
    args: &UpArgs,
    place: Place<'_>,
    stop: &CancellationToken,
    progress: &mut Progress<'_>,
) -> Result<u8, ServeError> {
    let store = Store::connect(&place.options)?;
    let served = serve_on(&store, args, place, stop, progress).await;
    // Also after a refusal, and before Postgres stops: cut connections would log errors.
    store.close().await;
    served
}

async fn serve_on(
    store: &Store,
    args: &UpArgs,
    place: Place<'_>,
    stop: &CancellationToken,
    progress: &mut Progress<'_>,
) -> Result<u8, ServeError> {
    let Place { data, address, local, egress, listener, tls, clock, given, options, postgres } =
        place;
    let sched = store::role_url(&options.url, "oc_sched", options.password.as_deref())?;
    check_schema(store::schema_version(&sched).await?)?;
    check_level(store.feature_level().await?)?;
    let owner = first_owner(store, &*clock, given, data.path()).await?;
    let site = gateway_role::site(store, &args.listen, listener.local_addr().ok()).await?;
    let keys = secrets::parse(&args.secrets.or_made_in(data.path())?)?;
    let root = TaskGroup::root("up");
    args.metrics.serve("up", &root).await?;
    args.traces.start("up", &root)?;
    let _reports = args.reports.start("up")?;
    let feed = args.catalog.feed(&egress, store, &clock, &root.role("catalog")).await?;
    let (known, out) = (Some(feed.clone()), egress.clone());
    let credentials = secrets::credentials(store.clone(), Some(keys), out, known, clock.clone());
    follow_key(&credentials, progress).await?;
    let current = feed.current();
    let mut model = models(&args.model, &current, &egress).await?;
    if let Some(pending) = model.pending.take() {
        pending.resolve(&root);
    }
    let env = environment(&args.model);
    let env_names: BTreeSet<String> = env.keys().cloned().collect();
    let listed = api::ModelList { catalog: Some(feed.clone()), keys: env_names.clone() };

    let blobs = args.data.blobs.open_or_in(data.path(), &args.egress, &root).await?;
    let signals: Arc<dyn Signals> = Arc::new(InProcess::new());
    let placement = placement_role::start(
        PlacementSetup {
            id: 1,
            data_dir: data.subfolder("placement")?,
            internal: None,
            single: true,
            store: store.clone(),
            migrate_url: postgres.map(migrate_url).transpose()?,
            signals: signals.clone(),
            clock: clock.clone(),
        },
        &root.role("placement"),
    )
    .await?;
    placement.ready().await;
    let StartedWorker { worker, told, checkouts } = worker_role::start(
        WorkerSetup {
            store: store.clone(),
            signals: signals.clone(),
            placement: Arc::new(placement.local()),
            clock: clock.clone(),
            llm: model.client.clone(),
            models: model.configured.clone(),
            catalog: feed,
            env,
            credentials: credentials.clone(),
            egress: egress.clone(),
            settings: args.drains.settings(TimeZone::system())?,
            blobs: blobs.clone(),
            folders: args.data.folders(data.path()),
            disk: args.data.workspace_disk.into(),
            blob_retention: args.data.blob_retention.length(),
            repository_copies: args.data.repository_copies(),
            node: "up".to_owned(),
            url: format!("{}://{address}", if tls.is_some() { "https" } else { "http" }),
            slots: args.drains.slots,
            commands: args.drains.commands(args.is_for_one_user()),
            pages: args.drains.network.pages(&args.egress)?,
            ways: args.drains.network.exits(&args.egress)?,
            allow_local_paths: local,
            hidden: args.drains.hidden.paths(
                args.data.folders(data.path()).all().into_iter().chain([data.path().to_owned()]),
            ),
        },
        &root.role("worker"),
    )
    .await?;
    progress.say(&told);
    // Whoever sees that the gateway is ready finds the key and the profile.
    let bound = listener
        .local_addr()
        .map_err(|error| ServeError::stopped("the listener's address is not known", &error))?;
    let url = format!("{}://{bound}", if tls.is_some() { "https" } else { "http" });
    let key = greeting::key_place(progress.hints, &owner.key, &url);
    let login = login_url(store, &SystemClock::new(), OrgId::FIRST, owner.user, site.url()).await?;
    let directory = args.directory.clone().or_else(|| std::env::current_dir().ok());
    let directory = directory.filter(|_| local);
    let wide_directory = directory.as_deref().and_then(cli::wide_directory_warning);
    let gateway = gateway_role::start(
        GatewaySetup {
            listener,
            tls,
            store: store.clone(),
            signals,
            placement: Arc::new(placement.local()),
            blobs: Some(blobs),
            checkouts: Some(checkouts).filter(|_| local),
            credentials,
            models: listed,
            clock,
            allow_local_paths: local,
            default_directory: directory,
            origins: Origins(args.listen.cors_origin.clone()),
            proxies: args.listen.proxies(),
            site: site.clone(),
            default_model: model.default_model(),
            spools: args.uploads.spools(data.path(), args.drains.disk.reserve.room())?,
            upload_quota: args.uploads.quota(),
        },
        &root.role("gateway"),
    )?;
    let default = model.configured.default_model();
    let greeting = Greeting {
        url,
        data: data.path(),
        wide_directory,
        key,
        login,
        hints: progress.hints,
        model: &model.kind,
        name: &default.model,
        missing_key: missing_key(store, default, &current, &env_names).await?,
    };
    greeting.print(progress.screen)?;

    let stopped = wait(stop, &root, postgres).await;
    progress.say("stopping: running turns get a few seconds to reach a boundary");
    gateway.shutdown().await;
    worker.shutdown(GRACE).await;
    placement.shutdown().await;
    root.shutdown(Duration::from_secs(2)).await;
    if let Some(simulated) = model.simulated {
        simulated.shutdown().await;
    }
    stopped
}

/// Wraps data keys with a new secrets key. Data keys that no known key opens stay; only turns that need them fail.
async fn follow_key(
    credentials: &Credentials,
    progress: &mut Progress<'_>,
) -> Result<(), ServeError> {
    let rewrapped = credentials.rewrap().await;
    let rewrapped = rewrapped
        .map_err(|error| ServeError::stopped("the secrets key cannot be followed", &error))?;
    if rewrapped.done > 0 || rewrapped.removed > 0 || !rewrapped.is_complete() {
        for line in secrets::told(&rewrapped) {
            progress.say(&format!("secrets: {line}"));
        }
    }
    Ok(())
}

/// Waits until the service must stop, or a part of it fails.
async fn wait(
    stop: &CancellationToken,
    root: &TaskGroup,
    postgres: Option<&Postgres>,
) -> Result<u8, ServeError> {
    let gone = async {
        match postgres {
            Some(postgres) => postgres.failed().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = stop.cancelled() => Ok(0),
        failure = root.failed() => Err(ServeError::Stopped(failure.to_string())),
        failure = gone => Err(ServeError::Stopped(failure.to_string())),
    }
}

/// Starts our own Postgres and migrates it to this build's schema.
pub(crate) async fn own_postgres(
    data: &DataDir,
    mut say: impl FnMut(&str),
) -> Result<(Postgres, StoreOptions), ServeError> {
    let postgres = Postgres::start(data, &PostgresOptions::default()).await?;
    let connection = postgres.connection();
    let passwords = RolePasswords {
        migrate: connection.password_for("oc_migrate"),
        serve: connection.password_for("oc_app"),
    };
    let url = connection.socket_url();
    say("checking the schema");
    let admin = connection.superuser_url(boot::DATABASE);
    let migrated = async {
        store::provision(&admin, &passwords).await?;
        let url = store::role_url(&url, "oc_migrate", Some(&passwords.migrate))?;
        store::migrate(&url).await?;
        // No other build uses this database, so the level can be raised at once.
        Store::raise_feature_level(&url).await
    };
    if let Err(error) = migrated.await {
        postgres.stop().await;
        return Err(error.into());
    }
    let options = StoreOptions { password: Some(passwords.serve), ..StoreOptions::new(url) };
    Ok((postgres, options))
}

/// Returns the login to our own Postgres as the role that raises the generation.
fn migrate_url(postgres: &Postgres) -> Result<String, ServeError> {
    let connection = postgres.connection();
    let password = connection.password_for("oc_migrate");
    Ok(store::role_url(&connection.socket_url(), "oc_migrate", Some(&password))?)
}

/// Refuses another schema. A service never migrates a database that it did not create.
pub(crate) fn check_schema(version: i64) -> Result<(), ServeError> {
    if version == store::SCHEMA_VERSION {
        return Ok(());
    }
    store::refuse_older(version)?;
    let fix = if version > store::SCHEMA_VERSION {
        "start a newer build"
    } else {
        "run `opencode-cloud migrate --database-url …` with this build first"
    };
    Err(ServeError::Stopped(format!(
        "the database is of schema {version} and this build needs {}: {fix}",
        store::SCHEMA_VERSION
    )))
}

/// Refuses a cluster whose feature level this build does not know.
pub(crate) fn check_level(level: FeatureLevel) -> Result<(), ServeError> {
    if !level.is_newer() {
        return Ok(());
    }
    Err(ServeError::Stopped(format!(
        "the cluster's feature level is {level} and this build knows {}: start a newer build",
        FeatureLevel::OF_THIS_BUILD
    )))
}

/// The progress of the start, for people.
struct Progress<'s> {
    screen: &'s mut Screen,
    hints: Hints,
}

impl Progress<'_> {
    fn say(&mut self, text: &str) {
        // If standard error cannot be written, there is nowhere left to say so.
        let _unwritable = self.screen.err.say(&format!("opencode-cloud: {text}"));
    }
}
