//! `dev-cluster`: the service as separate processes on loopback, as a cluster has them.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use boot::{
    DataDir, GuardedChild, GuardedCommand, Nats, NatsOptions, Postgres, PostgresOptions,
    StopSignal, default_data_dir, ensure_free_space, free_port,
};
use clap::Args;
use placement_api::{Member, PlacementAdmin};
use serde_json::json;
use simulated_model::SimulatedModel;
use store::{RolePasswords, Store};
use tasks::CancellationToken;

use super::ServeError;
use super::args::{Disk, ModelArgs};
use super::bootstrap;
use super::catalog::CatalogArgs;
use super::model::{check_named, is_simulated};
use super::secrets::{self, SecretsArgs};
use crate::output::Screen;

/// Less than this and Postgres would fail in the middle of things.
const MIN_FREE_BYTES: u64 = 512 * 1024 * 1024;
/// How long a process may take to answer at first.
const START: Duration = Duration::from_secs(30);
/// How long a process may take to stop.
const STOP: Duration = Duration::from_secs(25);
/// A process that ended by itself is started again after this.
const RESTART: Duration = Duration::from_secs(1);
/// How often the processes are looked at.
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
    /// Whether the workers see one folder (shared), or each has one of its own (own), as on machines of their own
    #[arg(
        long,
        value_name = "DISK",
        value_enum,
        default_value_t = Disk::Shared,
        env = "OPENCODE_CLOUD_WORKSPACE_DISK"
    )]
    pub workspace_disk: Disk,
    /// Which model answers.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Which models there are beside.
    #[command(flatten)]
    pub catalog: CatalogArgs,
    /// A key for clients, of at least 20 characters; otherwise one is made at the first start and shown once
    #[arg(long, value_name = "KEY", env = "OPENCODE_CLOUD_BOOTSTRAP_KEY", hide_env_values = true)]
    pub bootstrap_key: Option<String>,
    /// What credentials are sealed under.
    #[command(flatten)]
    pub secrets: SecretsArgs,
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
    /// Leave processes that end as they are, instead of starting them again
    #[arg(long)]
    pub no_restart: bool,
}

/// One process of the cluster.
struct Process {
    name: String,
    role: &'static str,
    url: String,
    args: Vec<String>,
    child: Option<GuardedChild>,
    pid: u32,
    ended: Option<std::time::Instant>,
}

/// Runs a cluster until SIGINT or SIGTERM; answers the exit code.
///
/// # Errors
/// [`ServeError`], on one line with its fix.
pub async fn execute(
    args: ClusterCommand,
    stop: CancellationToken,
    screen: &mut Screen,
) -> Result<u8, ServeError> {
    // A key or a model that cannot be is refused before anything is started.
    bootstrap::given(args.bootstrap_key.as_deref())?;
    if args.catalog.catalog_url.is_none() {
        check_named(&args.model, &catalog::shipped())?;
    }
    let folder = args.data_dir.clone().unwrap_or_else(|| default_data_dir().join("cluster"));
    let data = DataDir::open(&folder)?;
    ensure_free_space(data.path(), MIN_FREE_BYTES)?;
    let manifest = data.path().join("cluster.json");
    // What an earlier run wrote says nothing about this one.
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
        let database = store::role_url(&connection.url(), "oc_app", Some(&passwords.serve))?;
        let key = self.first_key(args, &database).await?;
        // One simulated model for all workers, since they must resolve to the same one.
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
        self.write_manifest()?;
        let mut lines = vec!["OpenCode Cloud is ready, as a cluster on this machine:".to_owned()];
        for process in &self.processes {
            lines.push(format!("  {:10} {:7} {}", process.role, process.pid, process.url));
        }
        lines.push(format!("API key: {key}"));
        if simulated.is_some() {
            lines.push("Model: simulated (a small program, no language model)".into());
        }
        for line in lines {
            screen.out.line(&line).map_err(|error| ServeError::stopped("cannot print", &error))?;
        }
        let ended = self.watch(args, stop, screen).await;
        if let Some(simulated) = simulated {
            simulated.shutdown().await;
        }
        ended
    }

    async fn first_key(&self, args: &ClusterCommand, database: &str) -> Result<String, ServeError> {
        let store = Store::connect(&store::StoreOptions::new(database))?;
        let clock = domain::SystemClock::new();
        let given = bootstrap::given(args.bootstrap_key.as_deref())?;
        let made = bootstrap::first_key(&store, &clock, given).await;
        store.close().await;
        Ok(match made? {
            bootstrap::FirstKey::Made(key) => format!("{key} (shown once)"),
            bootstrap::FirstKey::Given => "the one given with --bootstrap-key".into(),
            bootstrap::FirstKey::Present => "as shown at the first start".into(),
        })
    }

    /// What every role is given.
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
            format!("--database-url={database}"),
            format!("--nats-url={}", self.nats.url()),
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
        for (flag, value) in [
            ("--model", &args.model.model),
            ("--model-key", &args.model.model_key),
            ("--openai-api-key", &args.model.openai_api_key),
        ] {
            model.extend(value.iter().map(|value| format!("{flag}={value}")));
        }
        model.extend(args.catalog.words());
        let keys = args.secrets.or_made_in(self.data.path())?;
        secrets::parse(&keys)?;
        let secrets = format!("--secrets-key={}", keys.trim_end().replace('\n', ","));
        Ok(Roles { members, cluster, model, secrets })
    }

    /// Starts the members and founds their group at the first start of the data folder.
    async fn placements(
        &mut self,
        args: &ClusterCommand,
        roles: &Roles,
        migrate: &str,
    ) -> Result<(), ServeError> {
        // A group knows its members by URL, and ports are new with every start: so is the group. Its
        // generation is raised, so that tokens of an earlier group are outranked.
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
            self.add(format!("placement-{}", member.id), "placement", member.url.clone(), words);
        }
        self.start_missing()?;
        let urls: Vec<String> = roles.members.iter().map(|member| member.url.clone()).collect();
        for url in &urls {
            answers(&format!("{url}/healthz")).await?;
        }
        let admin = PlacementAdmin::new(urls, None);
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
                roles.secrets.clone(),
                format!("--data-dir={}", self.data.path().display()),
            ];
            match args.workspace_disk {
                Disk::Shared => {
                    let given = args.workspace_dir.iter();
                    words.extend(given.map(|dir| format!("--workspace-dir={}", dir.display())));
                }
                Disk::Own => {
                    let given = args.workspace_dir.clone();
                    let all = given.unwrap_or_else(|| self.data.path().join("workspaces"));
                    let own = all.join(format!("worker-{number}"));
                    words.push(format!("--workspace-dir={}", own.display()));
                    words.push("--workspace-disk=own".to_owned());
                }
            }
            words.extend(roles.cluster.iter().chain(&roles.model).cloned());
            self.add(
                format!("worker-{number}"),
                "worker",
                format!("http://127.0.0.1:{port}"),
                words,
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
                format!("--blob-dir={}", self.data.path().join("blobs").display()),
                roles.secrets.clone(),
            ];
            if let Ok(here) = std::env::current_dir() {
                words.push(format!("--directory={}", here.display()));
            }
            words.extend(roles.cluster.iter().chain(&roles.model).cloned());
            let name = format!("gateway-{}", number + 1);
            self.add(name, "gateway", format!("http://127.0.0.1:{port}"), words);
        }
        Ok(())
    }

    fn add(&mut self, name: String, role: &'static str, url: String, args: Vec<String>) {
        let (child, pid, ended) = (None, 0, None);
        self.processes.push(Process { name, role, url, args, child, pid, ended });
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

    /// Starts again what ends, and keeps cluster.json true, until the end is asked for.
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
                if process.has_ended().await {
                    say(screen, &format!("{} ({}) ended", process.name, process.pid));
                    changed = true;
                }
                if !args.no_restart && process.ended.is_some_and(|at| at.elapsed() >= RESTART) {
                    process.start(&logs)?;
                    changed = true;
                }
            }
            if changed {
                self.write_manifest()?;
            }
        }
    }

    /// Writes cluster.json whole: readers see the old one or the new one.
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
        let new = self.manifest.with_extension("json.new");
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, &self.manifest))
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

/// What the roles' command lines have in common.
struct Roles {
    members: Vec<Member>,
    cluster: Vec<String>,
    model: Vec<String>,
    /// For gateways and workers.
    secrets: String,
}

impl Process {
    fn start(&mut self, logs: &Path) -> Result<(), ServeError> {
        let path = logs.join(format!("{}.log", self.name));
        let open = || File::options().create(true).append(true).open(&path);
        let (out, err) = open().and_then(|out| Ok((out, open()?))).map_err(|error| {
            ServeError::stopped(&format!("{} cannot be written", path.display()), &error)
        })?;
        let this = std::env::current_exe()
            .map_err(|error| ServeError::stopped("this executable cannot be found", &error))?;
        let mut command = GuardedCommand::new(&this, StopSignal::Terminate);
        command.command().args(&self.args).stdout(out).stderr(err);
        let child = command.spawn()?;
        self.pid = child.pid().unwrap_or_default();
        self.child = Some(child);
        self.ended = None;
        Ok(())
    }

    /// Notes an end that was not asked for. True once for each.
    async fn has_ended(&mut self) -> bool {
        let Some(child) = &mut self.child else { return false };
        let ended = tokio::time::timeout(Duration::ZERO, child.wait()).await.is_ok();
        if ended {
            self.child = None;
            self.ended = Some(std::time::Instant::now());
        }
        ended
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
    // Nowhere is left to tell of a standard error that cannot be written.
    let _unwritable = screen.err.line(&format!("opencode-cloud: {text}"));
}
