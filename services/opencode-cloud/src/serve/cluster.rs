//! `dev-cluster`: the service as separate processes on loopback, as a cluster has them.

mod process;
mod roles;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use boot::{
    DataDir, GuardedChild, Nats, NatsOptions, NatsRole, Postgres, PostgresOptions,
    default_data_dir, ensure_free_space,
};
use clap::Args;
use cli::output::Screen;
use placement_api::PlacementAdmin;
use serde_json::json;
use simulated_model::SimulatedModel;
use store::{RolePasswords, Store};
use tasks::CancellationToken;

use process::{Process, answers, ended};
use roles::Roles;

use super::ServeError;
use super::args::{Disk, ModelArgs};
use super::blobs::BlobArgs;
use super::bootstrap::{self, Owner};
use super::catalog::CatalogArgs;
use super::disk::{DiskArgs, UploadArgs};
use super::egress::EgressArgs;
use super::model::{check_named, is_simulated};
use super::network::NetworkArgs;
use super::reports::ReportArgs;
use super::secrets::SecretsArgs;
use super::tool_policy::CommandPolicy;
use super::traces::TraceArgs;
use super::worker_role::Folders;

/// The free disk space, in bytes, below which Postgres would soon fail.
const MIN_FREE_BYTES: u64 = 512 * 1024 * 1024;
/// How long a process may take to stop.
const STOP: Duration = Duration::from_secs(25);
/// A process that exits is restarted after this.
const RESTART: Duration = Duration::from_secs(1);
/// How often the processes are checked.
const LOOK: Duration = Duration::from_millis(200);

/// Arguments of `dev-cluster`.
#[derive(Debug, Clone, Args)]
pub struct ClusterCommand {
    /// Port of the first gateway; the second has the next one
    #[arg(long, value_name = "N", default_value_t = 4096, env = "OPENCODE_CLOUD_PORT")]
    pub port: u16,
    /// Folder for everything that is kept, and for cluster.json
    #[arg(long, value_name = "DIR", env = "OPENCODE_CLOUD_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Folder for managed workspaces [default: in --data-dir]
    #[arg(long, value_name = "DIR", env = "OPENCODE_CLOUD_WORKSPACE_DIR")]
    pub workspace_dir: Option<PathBuf>,
    /// Whether the workers see one folder of workspaces (shared), or each has its own, as on separate machines (own)
    #[arg(
        long,
        value_name = "DISK",
        value_enum,
        default_value_t = Disk::Shared,
        env = "OPENCODE_CLOUD_WORKSPACE_DISK"
    )]
    pub workspace_disk: Disk,
    /// Where tool outputs and snapshots are kept.
    #[command(flatten)]
    pub blobs: BlobArgs,
    /// The traces of its processes.
    #[command(flatten)]
    pub traces: TraceArgs,
    /// The reports of its errors.
    #[command(flatten)]
    pub reports: ReportArgs,
    /// The model that answers.
    #[command(flatten)]
    pub model: ModelArgs,
    /// The other models.
    #[command(flatten)]
    pub catalog: CatalogArgs,
    /// Another API key, of at least 20 characters [default: one is made at the first start, for the client profile]
    #[arg(long, value_name = "KEY", env = "OPENCODE_CLOUD_BOOTSTRAP_KEY", hide_env_values = true)]
    pub bootstrap_key: Option<String>,
    /// The keys that seal credentials.
    #[command(flatten)]
    pub secrets: SecretsArgs,
    /// The addresses that requests may go to.
    #[command(flatten)]
    pub egress: EgressArgs,
    /// The network of commands.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// The disks of commands.
    #[command(flatten)]
    pub disk: DiskArgs,
    /// How much uploads take.
    #[command(flatten)]
    pub uploads: UploadArgs,
    /// Placement members
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub placements: u16,
    /// Gateways
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub gateways: u16,
    /// Workers
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub workers: u16,
    /// Drop this share of all signals, 0 to 1
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.0,
        env = "OPENCODE_CLOUD_DROP_SIGNALS",
        hide = true
    )]
    pub drop_signals: f64,
    /// Do not restart processes that exit
    #[arg(long)]
    pub no_restart: bool,
}

/// Runs a cluster until SIGINT or SIGTERM, and returns the exit code.
///
/// # Errors
/// [`ServeError`], on one line with its fix.
pub async fn execute(
    args: ClusterCommand,
    stop: CancellationToken,
    screen: &mut Screen,
) -> Result<u8, ServeError> {
    // A bad key or an unknown model is refused before anything starts.
    bootstrap::given(args.bootstrap_key.as_deref())?;
    args.network.check_hosts()?;
    if args.catalog.catalog_url.is_none() {
        check_named(&args.model, &catalog::shipped())?;
    }
    let folder = args.data_dir.clone().unwrap_or_else(|| default_data_dir().join("cluster"));
    let data = DataDir::open(&folder)?;
    ensure_free_space(data.path(), MIN_FREE_BYTES)?;
    let manifest = data.path().join("cluster.json");
    // The manifest of an earlier run is stale.
    let _absent = std::fs::remove_file(&manifest);
    say(screen, "starting Postgres and NATS");
    let postgres = Postgres::start(&data, &PostgresOptions::default()).await?;
    let nats = Nats::start(&data, &NatsOptions::default()).await?;
    let mut cluster = Cluster { data, postgres, nats, processes: Vec::new(), manifest };
    let ran = cluster.run(&args, &stop, screen).await;
    say(screen, "stopping");
    cluster.stop().await;
    ran.map(|()| 0)
}

struct Cluster {
    data: DataDir,
    postgres: Postgres,
    nats: Nats,
    processes: Vec<Process>,
    manifest: PathBuf,
}

impl Cluster {
    async fn run(
        &mut self,
        args: &ClusterCommand,
        stop: &CancellationToken,
        screen: &mut Screen,
    ) -> Result<(), ServeError> {
        let connection = self.postgres.connection().clone();
        let passwords = RolePasswords {
            migrate: connection.password_for("oc_migrate"),
            serve: connection.password_for("oc_app"),
        };
        store::provision(&connection.superuser_url(boot::DATABASE), &passwords).await?;
        let migrate = store::role_url(&connection.url(), "oc_migrate", Some(&passwords.migrate))?;
        store::migrate(&migrate).await?;
        // All processes of this cluster have this build.
        Store::raise_feature_level(&migrate).await?;
        let database = store::role_url(&connection.url(), "oc_app", Some(&passwords.serve))?;
        let owner = self.first_owner(args, &database).await?;
        // All workers share one simulated model, because they must resolve to the same one.
        let simulated =
            if is_simulated(&args.model) {
                let options = simulated_model::Options {
                    log_bodies: false,
                    ..simulated_model::Options::default()
                };
                let running = SimulatedModel::start(options).await;
                Some(running.map_err(|error| {
                    ServeError::stopped("the simulated model cannot start", &error)
                })?)
            } else {
                None
            };
        say(screen, "starting placement, workers and gateways");
        let roles = Roles::new(args, &self.data, &database, simulated.as_ref())?;
        self.placements(args, &roles, &migrate).await?;
        for number in 1..=args.workers {
            let nats = self.nats.url_for(NatsRole::Worker).to_string();
            self.processes.push(roles.worker(args, self.data.path(), number, nats)?);
        }
        for number in 0..args.gateways {
            let nats = self.nats.url_for(NatsRole::Gateway).to_string();
            self.processes.push(roles.gateway(args, self.data.path(), number, nats)?);
        }
        self.start_missing()?;
        self.wait_ready(stop).await?;
        let gateways = self.processes.iter().filter(|process| process.role == "gateway");
        let gateways: Vec<String> = gateways.map(|process| process.url.clone()).collect();
        // Whoever sees that the cluster is ready finds it in the profile.
        let place = bootstrap::note(&owner.key, &gateways);
        let login = match gateways.first() {
            Some(gateway) => Some(self.login(&database, &owner, gateway).await?),
            None => None,
        };
        self.write_manifest()?;
        say(screen, &self.sandbox(args).await?);
        let mut lines = vec!["OpenCode Cloud is ready, as a cluster on this machine:".to_owned()];
        for process in &self.processes {
            lines.push(format!("  {:10} {:7} {}", process.role, process.pid, process.url));
        }
        lines.push(format!("Data:  {}", self.data.path().display()));
        lines.push(format!("Key:   {}", place.told));
        lines.extend(login.map(|login| format!("Login: {login} (once, within an hour)")));
        if simulated.is_some() {
            lines.push("Model: simulated: a small program, not a language model".into());
        }
        lines.push("Try, in another terminal:".into());
        let key = if place.is_in_profile { "" } else { "OPENCODE_CLOUD_KEY=KEY " };
        lines.push(format!("  {key}{} run \"list the files\"", cli::program()));
        for line in lines {
            screen.out.say(&line).map_err(|error| ServeError::stopped("cannot print", &error))?;
        }
        let ended = self.watch(args, stop, screen).await;
        if let Some(simulated) = simulated {
            simulated.shutdown().await;
        }
        ended
    }

    async fn first_owner(
        &self,
        args: &ClusterCommand,
        database: &str,
    ) -> Result<Owner, ServeError> {
        let store = Store::connect(&store::StoreOptions::new(database))?;
        let clock = domain::SystemClock::new();
        let given = bootstrap::given(args.bootstrap_key.as_deref())?;
        let owner = bootstrap::first_owner(&store, &clock, given, self.data.path()).await;
        store.close().await;
        owner
    }

    /// Makes a link that logs the owner in at one gateway.
    async fn login(
        &self,
        database: &str,
        owner: &Owner,
        gateway: &str,
    ) -> Result<String, ServeError> {
        let store = Store::connect(&store::StoreOptions::new(database))?;
        let clock = domain::SystemClock::new();
        let public = gateway.parse().map_err(|error: api::PublicUrlError| {
            ServeError::stopped("the gateway's URL is no public URL", &error)
        })?;
        let user = owner.user.clone();
        let url = bootstrap::login_url(&store, &clock, domain::OrgId::FIRST, user, &public).await;
        store.close().await;
        url
    }

    /// Returns a line about the sandbox that workers find on this machine.
    async fn sandbox(&self, args: &ClusterCommand) -> Result<String, ServeError> {
        let folders = Folders::in_data(self.data.path(), args.workspace_dir.as_ref(), None);
        folders.make()?;
        let policy = CommandPolicy::of_a_dev_cluster(args.network.network, args.disk.limits());
        let found = policy.find(&folders.spool, &folders.workspaces, None).await;
        Ok(policy.told(&found))
    }

    /// Starts the members, and founds their group at the first start of the data folder.
    async fn placements(
        &mut self,
        args: &ClusterCommand,
        roles: &Roles,
        migrate: &str,
    ) -> Result<(), ServeError> {
        // A group knows its members by URL. Ports change with every start, so the group is new too. A raised
        // generation makes its tokens outrank those of earlier groups.
        let generation = Store::raise_generation(migrate).await?;
        for member in &roles.members {
            let folder =
                self.data.subfolder("placement")?.join(format!("{}-{}", generation.0, member.id));
            let nats = self.nats.url_for(NatsRole::Placement).to_string();
            self.processes.push(roles.placement(member, &folder, nats));
        }
        self.start_missing()?;
        let urls: Vec<String> = roles.members.iter().map(|member| member.url.clone()).collect();
        for url in &urls {
            answers(&format!("{url}/healthz")).await?;
        }
        let admin = PlacementAdmin::new(urls, Some(roles.secret.clone()));
        admin
            .init(&roles.members)
            .await
            .map_err(|error| ServeError::stopped("placement cannot be founded", &error))?;
        debug_assert_eq!(usize::from(args.placements), roles.members.len());
        Ok(())
    }

    /// Starts every process that does not run.
    fn start_missing(&mut self) -> Result<(), ServeError> {
        let logs = self.data.subfolder("logs")?;
        for process in self.processes.iter_mut().filter(|process| process.child.is_none()) {
            process.start(&logs)?;
        }
        Ok(())
    }

    async fn wait_ready(&self, stop: &CancellationToken) -> Result<(), ServeError> {
        for process in &self.processes {
            let url = format!("{}/readyz", process.url);
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                ready = answers(&url) => ready?,
            }
        }
        Ok(())
    }

    /// Restarts processes that exit, and keeps cluster.json correct, until the cluster must stop.
    async fn watch(
        &mut self,
        args: &ClusterCommand,
        stop: &CancellationToken,
        screen: &mut Screen,
    ) -> Result<(), ServeError> {
        let logs = self.data.subfolder("logs")?;
        let mut servers = (self.postgres.pid(), self.nats.pid());
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                failure = self.postgres.failed() => return Err(ServeError::Stopped(failure.to_string())),
                failure = self.nats.failed() => return Err(ServeError::Stopped(failure.to_string())),
                () = tokio::time::sleep(LOOK) => {}
            }
            let mut changed = servers != (self.postgres.pid(), self.nats.pid());
            servers = (self.postgres.pid(), self.nats.pid());
            for process in &mut self.processes {
                if let Some(status) = process.has_ended().await {
                    let how = ended(&status);
                    say(screen, &format!("{} ({}) {how}", process.name, process.pid));
                    changed = true;
                }
                if !args.no_restart && process.ended.is_some_and(|at| at.elapsed() >= RESTART) {
                    process.start(&logs)?;
                    say(screen, &format!("{} restarted ({})", process.name, process.pid));
                    changed = true;
                }
            }
            if changed {
                self.write_manifest()?;
            }
        }
    }

    /// Replaces cluster.json in one step, so that readers see the old or the new one.
    fn write_manifest(&self) -> Result<(), ServeError> {
        let connection = self.postgres.connection();
        let mut rows: Vec<_> = self
            .processes
            .iter()
            .filter(|process| process.child.is_some())
            .map(|process| json!({"role": process.role, "pid": process.pid, "url": process.url}))
            .collect();
        if let Some(pid) = self.postgres.pid() {
            rows.push(json!({"role": "postgres", "pid": pid, "url": connection.url()}));
        }
        if let Some(pid) = self.nats.pid() {
            let url = format!("nats://127.0.0.1:{}", self.nats.port());
            rows.push(json!({"role": "nats", "pid": pid, "url": url}));
        }
        let text = json!({ "processes": rows }).to_string();
        write_private(&self.manifest, &text)
            .map_err(|error| ServeError::stopped("cluster.json cannot be written", &error))
    }

    /// Stops gateways first, then workers, then placement, then the servers.
    async fn stop(mut self) {
        let mut by_role: BTreeMap<u8, Vec<GuardedChild>> = BTreeMap::new();
        for process in &mut self.processes {
            let order = match process.role {
                "gateway" => 0,
                "worker" => 1,
                _ => 2,
            };
            by_role.entry(order).or_default().extend(process.child.take());
        }
        for (_, children) in by_role {
            futures::future::join_all(children.into_iter().map(|mut child| async move {
                if let Err(error) = child.stop(STOP).await {
                    tracing::warn!(%error, "a process did not stop in order");
                }
            }))
            .await;
        }
        self.nats.stop().await;
        self.postgres.stop().await;
        let _absent = std::fs::remove_file(&self.manifest);
    }
}

/// Replaces a file in one step. Only this user can read it.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let _stale = std::fs::remove_file(&new);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&new, path)
}

fn say(screen: &mut Screen, text: &str) {
    // If standard error cannot be written, there is nowhere left to say so.
    let _unwritable = screen.err.say(&format!("opencode-cloud: {text}"));
}
