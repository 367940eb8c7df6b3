//! `up` and `serve`: all roles in one process, on a Postgres of our own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use boot::{DataDir, Postgres, PostgresOptions, default_data_dir, ensure_free_space};
use clap::Args;
use credentials::Credentials;
use domain::{Clock, SystemClock};
use jiff::tz::TimeZone;
use signals::{InProcess, Signals};
use store::{NewKey, RolePasswords, Store, StoreOptions};
use tasks::{CancellationToken, TaskGroup};
use tokio::net::TcpListener;

use super::ServeError;
use super::args::{DataArgs, DrainArgs, ListenArgs, ModelArgs};
use super::bootstrap::{self, FirstKey, first_key};
use super::catalog::{CatalogArgs, environment};
use super::gateway_role::{self, GatewaySetup, check_local_paths};
use super::model::{ModelKind, models};
use super::placement_role::{self, PlacementSetup};
use super::secrets::{self, SecretsArgs};
use super::worker_role::{self, Folders, WorkerSetup};
use crate::output::Screen;

/// Less than this and Postgres would fail in the middle of things.
const MIN_FREE_BYTES: u64 = 256 * 1024 * 1024;

/// How long running turns may take to reach a boundary when the service stops.
const GRACE: Duration = Duration::from_secs(5);

/// Arguments of `up` and `serve`.
#[derive(Debug, Clone, Args)]
pub struct UpArgs {
    /// Where clients reach the service.
    #[command(flatten)]
    pub listen: ListenArgs,
    /// Where data is.
    #[command(flatten)]
    pub data: DataArgs,
    /// Which model answers.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Which models there are beside.
    #[command(flatten)]
    pub catalog: CatalogArgs,
    /// Use this Postgres instead of one of our own; provision it with `opencode-cloud migrate`
    #[arg(long, value_name = "URL", env = "OPENCODE_CLOUD_DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// A key for clients, of at least 20 characters; otherwise one is made at the first start and shown once
    #[arg(long, value_name = "KEY", env = "OPENCODE_CLOUD_BOOTSTRAP_KEY", hide_env_values = true)]
    pub bootstrap_key: Option<String>,
    /// What credentials are sealed under.
    #[command(flatten)]
    pub secrets: SecretsArgs,
    /// How sessions run.
    #[command(flatten)]
    pub drains: DrainArgs,
    /// Where the directory of stock clients that name none is [default: the current one]
    #[arg(long, value_name = "DIR", env = "OPENCODE_CLOUD_DIRECTORY")]
    pub directory: Option<PathBuf>,
}

/// Whether people are told what to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hints {
    /// `up`
    Shown,
    /// `serve`
    Left,
}

/// Runs the service until SIGINT or SIGTERM; answers the exit code.
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
    let folder = args.data.data_dir.clone().unwrap_or_else(default_data_dir);
    let data = DataDir::open(&folder)?;
    ensure_free_space(data.path(), MIN_FREE_BYTES)?;
    let address = SocketAddr::new(args.listen.bind, args.listen.port);
    let local = args.listen.allow_local_paths || address.ip().is_loopback();
    check_local_paths(local, address)?;
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
        listener,
        given,
        options,
        postgres: postgres.as_ref(),
    };
    let served = serve(&args, place, &stop, &mut progress).await;
    // Also when the service could not start: nothing of ours stays behind a refusal.
    if let Some(postgres) = postgres {
        postgres.stop().await;
    }
    if served.is_ok() {
        progress.say("stopped; everything is kept in the data folder");
    }
    drop(data);
    served
}

/// What the roles stand on.
struct Place<'p> {
    data: &'p DataDir,
    address: SocketAddr,
    /// Whether sessions may run in any directory of this machine.
    local: bool,
    listener: TcpListener,
    /// The key of `--bootstrap-key`.
    given: Option<NewKey>,
    options: StoreOptions,
    /// Ours, where it is ours.
    postgres: Option<&'p Postgres>,
}

/// Runs the roles until the end is asked for or one of them cannot go on.
async fn serve(
    args: &UpArgs,
    place: Place<'_>,
    stop: &CancellationToken,
    progress: &mut Progress<'_>,
) -> Result<u8, ServeError> {
    let store = Store::connect(&place.options)?;
    let served = serve_on(&store, args, place, stop, progress).await;
    // Also after a refusal, and before its Postgres goes: connections that are cut would complain.
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
    let Place { data, address, local, listener, given, options, postgres } = place;
    let sched = store::role_url(&options.url, "oc_sched", options.password.as_deref())?;
    check_schema(store::schema_version(&sched).await?)?;
    check_level(store.feature_level().await?)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let key = first_key(store, &*clock, given).await?;
    let keys = secrets::parse(&args.secrets.or_made_in(data.path())?)?;
    let is_local = address.ip().is_loopback();
    let credentials = secrets::credentials(store.clone(), Some(keys), is_local, clock.clone())?;
    follow_key(&credentials, progress).await?;
    let root = TaskGroup::root("up");
    let feed = args.catalog.feed(store, &clock, &root.role("catalog")).await?;
    let model = models(&args.model, &feed.current()).await?;
    let env = environment(&args.model);
    let listed =
        api::ModelList { catalog: Some(feed.clone()), keys: env.keys().cloned().collect() };

    let signals: Arc<dyn Signals> = Arc::new(InProcess::new());
    let internal = boot::listen(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let placement = placement_role::start(
        PlacementSetup {
            id: 1,
            data_dir: data.subfolder("placement")?,
            listener: internal,
            secret: None,
            single: true,
            store: store.clone(),
            signals: signals.clone(),
            clock: clock.clone(),
        },
        &root.role("placement"),
    )
    .await?;
    placement.ready().await;
    let worker = worker_role::start(
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
            settings: args.drains.settings(TimeZone::system())?,
            folders: Folders::in_data(data.path(), args.data.workspace_dir.as_ref()),
            disk: args.data.workspace_disk.into(),
            blob_retention: args.data.blob_retention.length(),
            node: "up".to_owned(),
            url: format!("http://{address}"),
            slots: args.drains.slots,
        },
        &root.role("worker"),
    )?;
    let directory = args.directory.clone().or_else(|| std::env::current_dir().ok());
    let gateway = gateway_role::start(
        GatewaySetup {
            listener,
            store: store.clone(),
            signals,
            placement: Arc::new(placement.local()),
            blobs: Some(Folders::in_data(data.path(), None).blobs),
            credentials,
            models: listed,
            clock,
            allow_local_paths: local,
            default_directory: directory.filter(|_| local),
            default_model: model.configured.default_model().clone(),
        },
        &root.role("gateway"),
    )?;
    progress.ready(&gateway.url(), &key, &model.kind, &model.configured.default_model().model)?;

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

/// A new secrets key wraps what older ones did. What they do not open is left: only its turns need it.
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

/// Waits for the end: asked for, or because a part of the service cannot go on.
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

/// Starts our own Postgres and brings it to this build's schema.
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
        store::migrate(&url).await
    };
    if let Err(error) = migrated.await {
        postgres.stop().await;
        return Err(error.into());
    }
    let options = StoreOptions { password: Some(passwords.serve), ..StoreOptions::new(url) };
    Ok((postgres, options))
}

/// A service never migrates a database that it did not make.
pub(crate) fn check_schema(version: i64) -> Result<(), ServeError> {
    if version == store::SCHEMA_VERSION {
        return Ok(());
    }
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

/// A cluster whose level was raised writes what older builds cannot read.
pub(crate) fn check_level(level: i32) -> Result<(), ServeError> {
    if level <= store::FEATURES {
        return Ok(());
    }
    Err(ServeError::Stopped(format!(
        "the cluster's feature level is {level} and this build knows {}: start a newer build",
        store::FEATURES
    )))
}

/// What people see of the start.
struct Progress<'s> {
    screen: &'s mut Screen,
    hints: Hints,
}

impl Progress<'_> {
    fn say(&mut self, text: &str) {
        // Nowhere is left to tell of a standard error that cannot be written.
        let _unwritable = self.screen.err.line(&format!("opencode-cloud: {text}"));
    }

    fn ready(
        &mut self,
        url: &str,
        key: &FirstKey,
        model: &ModelKind,
        name: &str,
    ) -> Result<(), ServeError> {
        let mut lines = vec![format!("OpenCode Cloud is ready at {url}")];
        match key {
            FirstKey::Made(key) => lines.push(format!("API key (shown once): {key}")),
            FirstKey::Given => lines.push("API key: the one given with --bootstrap-key".into()),
            FirstKey::Present => lines.push("API key: as shown at the first start".into()),
        }
        lines.push(match model {
            ModelKind::Url(url) => format!("Model: {name} at {url}"),
            ModelKind::Catalog(provider) => format!("Model: {name} ({provider})"),
            ModelKind::Simulated => {
                "Model: simulated (a small program, no language model). For a real one set \
                OPENAI_API_KEY, or --model PROVIDER/MODEL with that provider's key, or --model-url for Ollama, vLLM, \
                llama.cpp, …"
                    .into()
            }
        });
        if self.hints == Hints::Shown {
            let key = match key {
                FirstKey::Made(key) => key.as_str(),
                FirstKey::Given | FirstKey::Present => "KEY",
            };
            let at = if url.ends_with(":4096") { String::new() } else { format!("--url {url} ") };
            lines.push("Try, in another terminal:".into());
            lines.push(format!(
                "  opencode-cloud run \"list the files\" --directory . {at}--key {key}"
            ));
            lines.push("Ctrl-C stops it; nothing is lost.".into());
        }
        for line in lines {
            self.screen.out.line(&line).map_err(|error| {
                ServeError::stopped("cannot print where the service is", &error)
            })?;
        }
        Ok(())
    }
}
