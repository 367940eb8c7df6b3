//! `dev-cluster`: the service as separate processes on loopback, as a cluster has them.
//!
//! Long because it is one list: each role's command line, in the order in which the roles start.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use boot::{
    DataDir, GuardedChild, GuardedCommand, Nats, NatsOptions, NatsRole, Postgres, PostgresOptions,
    StopSignal, default_data_dir, ensure_free_space, free_port,
};
use clap::Args;
use cli::output::Screen;
use placement_api::{Member, PlacementAdmin};
use serde_json::json;
use simulated_model::SimulatedModel;
use store::{RolePasswords, Store};
use tasks::CancellationToken;

use super::ServeError;
use super::args::{Disk, ModelArgs};
use super::blobs::BlobArgs;
use super::bootstrap::{self, Owner};
use super::catalog::CatalogArgs;
use super::disk::DiskArgs;
use super::egress::EgressArgs;
use super::model::{check_named, is_simulated};
use super::network::NetworkArgs;
use super::reports::ReportArgs;
use super::secrets::{self, SecretsArgs};
use super::tool_policy::CommandPolicy;
use super::traces::TraceArgs;
use super::worker_role::Folders;

/// The free disk space, in bytes, below which Postgres would soon fail.
const MIN_FREE_BYTES: u64 = 512 * 1024 * 1024;
/// How long a process may take until it first answers.
const START: Duration = Duration::from_secs(30);
/// How long a process may take to stop.
const STOP: Duration = Duration::from_secs(25);
/// A process that exits is restarted after this.
const RESTART: Duration = Duration::from_secs(1);
/// The file of placement's secret in the data folder.
const SECRET_FILE: &str = "cluster.secret";
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

/// One process of the cluster.
struct Process {
    name: String,
    role: &'static str,
    url: String,
    args: Vec<String>,
    /// Settings that a list of processes must not show to other users.
    variables: Vec<(&'static str, String)>,
    child: Option<GuardedChild>,
    pid: u32,
    ended: Option<std::time::Instant>,
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
        let common = self.common_args(args, &database, simulated.as_ref())?;
        self.placements(args, &common, &migrate).await?;
        self.workers(args, &common)?;
        self.gateways(args, &common)?;
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

    /// Returns the arguments that every role gets.
    fn common_args(
        &self,
        args: &ClusterCommand,
        database: &str,
        simulated: Option<&simulated_model::Running>,
    ) -> Result<Roles, ServeError> {
        let ports: Vec<u16> =
            (0..args.placements).map(|_| free_port()).collect::<Result<_, _>>()?;
        let members: Vec<Member> = (1..)
            .zip(ports)
            .map(|(id, port)| Member { id, url: format!("http://127.0.0.1:{port}"), voter: true })
            .collect();
        let peers: Vec<&str> = members.iter().map(|member| member.url.as_str()).collect();
        let cluster = vec![
            format!("--placement-peers={}", peers.join(",")),
            format!("--drop-signals={}", args.drop_signals),
        ];
        let mut model = Vec::new();
        if let Some(url) = args.model.model_url.clone().or_else(|| simulated.map(|s| s.url())) {
            model.push(format!("--model-url={url}"));
        }
        let provider = match simulated {
            Some(_) => "simulated",
            None => &args.model.model_provider,
        };
        model.push(format!("--model-provider={provider}"));
        if simulated.is_none() {
            model.push(format!("--model-protocol={}", args.model.model_protocol.id()));
        }
        model.extend(args.model.model.iter().map(|value| format!("--model={value}")));
        model.extend(args.catalog.words());
        let keys = args.secrets.or_made_in(self.data.path())?;
        secrets::parse(&keys)?;
        let secret = own_secret(&self.data)?;
        let variables = vec![
            ("OPENCODE_CLOUD_DATABASE_URL", database.to_owned()),
            ("OPENCODE_CLOUD_CLUSTER_SECRET", secret.clone()),
        ];
        // Sessions run in any directory of this machine anyway, so everybody who reaches the cluster also runs it.
        let egress = EgressArgs { egress_private: true, ..args.egress.clone() };
        let mut providers =
            vec![("OPENCODE_CLOUD_SECRETS_KEY", keys.trim_end().replace('\n', ","))];
        providers.extend(egress.variables());
        providers.extend(args.blobs.variables());
        providers.extend(args.traces.variables());
        providers.extend(args.reports.variables());
        for (name, value) in [
            ("OPENCODE_CLOUD_MODEL_KEY", &args.model.model_key),
            ("OPENAI_API_KEY", &args.model.openai_api_key),
        ] {
            providers.extend(value.iter().map(|value| (name, value.clone())));
        }
        Ok(Roles { members, cluster, model, variables, providers, secret })
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
            let port = member.url.rsplit(':').next().unwrap_or_default();
            let mut words = vec![
                "placement".to_owned(),
                "serve".to_owned(),
                format!("--id={}", member.id),
                format!("--port={port}"),
                format!("--data-dir={}", folder.display()),
            ];
            words.extend(roles.cluster.iter().cloned());
            let name = format!("placement-{}", member.id);
            let nats = self.nats.url_for(NatsRole::Placement).to_string();
            let variables = with_nats(roles.variables.clone(), nats);
            self.add(name, "placement", member.url.clone(), words, variables);
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

    fn workers(&mut self, args: &ClusterCommand, roles: &Roles) -> Result<(), ServeError> {
        for number in 1..=args.workers {
            let port = free_port()?;
            let mut words = vec![
                "worker".to_owned(),
                format!("--port={port}"),
                format!("--node=worker-{number}"),
                // All gateways are on loopback, and there is one organisation: the best that this machine gives.
                "--sandbox-require=C".to_owned(),
                "--allow-local-paths".to_owned(),
            ];
            let shared = self.data.path();
            words.extend(args.blobs.words(shared));
            words.extend(args.traces.words());
            words.extend(args.network.words());
            words.extend(args.disk.words());
            match args.workspace_disk {
                Disk::Shared => {
                    words.push(format!("--data-dir={}", shared.display()));
                    let given = args.workspace_dir.iter();
                    words.extend(given.map(|dir| format!("--workspace-dir={}", dir.display())));
                }
                Disk::Own => {
                    let given = args.workspace_dir.clone();
                    let all = given.unwrap_or_else(|| self.data.path().join("workspaces"));
                    let own = all.join(format!("worker-{number}"));
                    words.push(format!("--workspace-dir={}", own.display()));
                    words.push("--workspace-disk=own".to_owned());
                    let data = shared.join(format!("worker-{number}"));
                    words.push(format!("--data-dir={}", data.display()));
                    // For directories of this machine, which all workers see.
                    words.push(format!("--lock-dir={}", shared.join("locks").display()));
                }
            }
            words.extend(roles.cluster.iter().chain(&roles.model).cloned());
            self.add(
                format!("worker-{number}"),
                "worker",
                format!("http://127.0.0.1:{port}"),
                words,
                with_nats(roles.with_providers(), self.nats.url_for(NatsRole::Worker).to_string()),
            );
        }
        Ok(())
    }

    fn gateways(&mut self, args: &ClusterCommand, roles: &Roles) -> Result<(), ServeError> {
        for number in 0..args.gateways {
            let port = if number == 0 { args.port } else { second_port(args.port, number)? };
            let mut words = vec![
                "gateway".to_owned(),
                format!("--port={port}"),
                "--allow-local-paths".to_owned(),
            ];
            words.extend(args.blobs.words(self.data.path()));
            words.extend(args.traces.words());
            if let Ok(here) = std::env::current_dir() {
                words.push(format!("--directory={}", here.display()));
            }
            words.extend(roles.cluster.iter().chain(&roles.model).cloned());
            let name = format!("gateway-{}", number + 1);
            let url = format!("http://127.0.0.1:{port}");
            let nats = self.nats.url_for(NatsRole::Gateway).to_string();
            self.add(name, "gateway", url, words, with_nats(roles.with_providers(), nats));
        }
        Ok(())
    }

    fn add(
        &mut self,
        name: String,
        role: &'static str,
        url: String,
        args: Vec<String>,
        variables: Vec<(&'static str, String)>,
    ) {
        let (child, pid, ended) = (None, 0, None);
        self.processes.push(Process { name, role, url, args, variables, child, pid, ended });
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
            let path = if process.role == "gateway" { "readyz" } else { "healthz" };
            let url = format!("{}/{path}", process.url);
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

/// The common part of the roles' command lines.
struct Roles {
    members: Vec<Member>,
    cluster: Vec<String>,
    model: Vec<String>,
    /// For all roles, in their environment.
    variables: Vec<(&'static str, String)>,
    /// For gateways and workers only.
    providers: Vec<(&'static str, String)>,
    /// The secret of placement.
    secret: String,
}

impl Roles {
    fn with_providers(&self) -> Vec<(&'static str, String)> {
        self.variables.iter().chain(&self.providers).cloned().collect()
    }
}

/// Adds the URL for NATS. Each role's login may only do what that role needs.
fn with_nats(
    mut variables: Vec<(&'static str, String)>,
    url: String,
) -> Vec<(&'static str, String)> {
    variables.push(("OPENCODE_CLOUD_NATS_URL", url));
    variables
}

/// Returns the secret of the cluster's placement, which `opencode-cloud placement` needs too. The first start makes
/// it.
fn own_secret(data: &DataDir) -> Result<String, ServeError> {
    let path = data.path().join(SECRET_FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            let what = format!("cannot read {}", path.display());
            return Err(ServeError::stopped(&what, &error));
        }
        Ok(_) | Err(_) => {}
    }
    let secret = auth::generate();
    write_private(&path, &secret).map_err(|error| {
        ServeError::stopped(&format!("cannot write {}", path.display()), &error)
    })?;
    Ok(secret)
}

/// Replaces a file in one step. Only this user can read it.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let _stale = std::fs::remove_file(&new);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&new, path)
}

impl Process {
    fn start(&mut self, logs: &Path) -> Result<(), ServeError> {
        let path = logs.join(format!("{}.log", self.name));
        let open = || File::options().create(true).append(true).mode(0o600).open(&path);
        let (out, err) = open().and_then(|out| Ok((out, open()?))).map_err(|error| {
            ServeError::stopped(&format!("{} cannot be written", path.display()), &error)
        })?;
        let this = std::env::current_exe()
            .map_err(|error| ServeError::stopped("this executable cannot be found", &error))?;
        let mut command = GuardedCommand::new(&this, StopSignal::Terminate);
        command.command().args(&self.args).envs(self.variables.iter().cloned());
        command.command().stdout(out).stderr(err);
        let child = command.spawn()?;
        self.pid = child.pid().unwrap_or_default();
        self.child = Some(child);
        self.ended = None;
        Ok(())
    }

    /// Notes that the process has exited by itself, and returns its status, once.
    async fn has_ended(&mut self) -> Option<std::io::Result<ExitStatus>> {
        let child = self.child.as_mut()?;
        let status = tokio::time::timeout(Duration::ZERO, child.wait()).await.ok()?;
        self.child = None;
        self.ended = Some(std::time::Instant::now());
        Some(status)
    }
}

/// Describes the end of a process for people.
fn ended(status: &std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with exit code {code}"),
            (None, Some(signal)) => format!("was killed by signal {signal}"),
            (None, None) => "ended".to_owned(),
        },
        Err(error) => format!("ended ({error})"),
    }
}

fn second_port(first: u16, number: u16) -> Result<u16, ServeError> {
    let next = first.checked_add(number).filter(|_| first != 0);
    let free = next.filter(|port| {
        std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], *port))).is_ok()
    });
    Ok(match free {
        Some(port) => port,
        None => free_port()?,
    })
}

/// Waits until `url` answers with success.
async fn answers(url: &str) -> Result<(), ServeError> {
    let client = reqwest::Client::builder()
        .timeout(Duration::from_secs(1))
        .no_proxy()
        .build()
        .map_err(|error| ServeError::stopped("cannot ask the processes", &error))?;
    let ready = async {
        loop {
            if client.get(url).send().await.is_ok_and(|answer| answer.status().is_success()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(START, ready).await.map_err(|_| {
        ServeError::Stopped(format!(
            "{url} did not answer within {} s; see the logs in the data folder",
            START.as_secs()
        ))
    })
}

fn say(screen: &mut Screen, text: &str) {
    // If standard error cannot be written, there is nowhere left to say so.
    let _unwritable = screen.err.say(&format!("opencode-cloud: {text}"));
}
