//! The command line and the environment of each process of `dev-cluster`.

use std::net::SocketAddr;
use std::path::Path;

use boot::{DataDir, free_port};
use placement_api::Member;

use super::process::Process;
use super::{ClusterCommand, write_private};
use crate::serve::ServeError;
use crate::serve::args::Disk;
use crate::serve::egress::EgressArgs;
use crate::serve::secrets;

/// The file of placement's secret in the data folder.
const SECRET_FILE: &str = "cluster.secret";

/// The common part of the roles' command lines.
pub(super) struct Roles {
    /// Those of placement.
    pub(super) members: Vec<Member>,
    cluster: Vec<String>,
    model: Vec<String>,
    /// For all roles, in their environment.
    variables: Vec<(&'static str, String)>,
    /// For gateways and workers only.
    providers: Vec<(&'static str, String)>,
    /// The secret of placement.
    pub(super) secret: String,
}

impl Roles {
    /// Makes the common parts. `database` is the URL of the serving role.
    ///
    /// # Errors
    /// When no port is free, or a key or the secret cannot be read or made.
    pub(super) fn new(
        args: &ClusterCommand,
        data: &DataDir,
        database: &str,
        simulated: Option<&simulated_model::Running>,
    ) -> Result<Self, ServeError> {
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
        let keys = args.secrets.or_made_in(data.path())?;
        secrets::parse(&keys)?;
        let secret = own_secret(data)?;
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
        Ok(Self { members, cluster, model, variables, providers, secret })
    }

    /// A member of placement, whose state is in `folder`. `nats` is the URL with its role's login.
    pub(super) fn placement(&self, member: &Member, folder: &Path, nats: String) -> Process {
        let port = member.url.rsplit(':').next().unwrap_or_default();
        let mut words = vec![
            "placement".to_owned(),
            "serve".to_owned(),
            format!("--id={}", member.id),
            format!("--port={port}"),
            format!("--data-dir={}", folder.display()),
        ];
        words.extend(self.cluster.iter().cloned());
        let variables = with_nats(self.variables.clone(), nats);
        let name = format!("placement-{}", member.id);
        Process::new(name, "placement", member.url.clone(), words, variables)
    }

    /// The worker with this number, from 1 on. `data` is the folder of the cluster.
    ///
    /// # Errors
    /// When no port is free.
    pub(super) fn worker(
        &self,
        args: &ClusterCommand,
        data: &Path,
        number: u16,
        nats: String,
    ) -> Result<Process, ServeError> {
        let port = free_port()?;
        let mut words = vec![
            "worker".to_owned(),
            format!("--port={port}"),
            format!("--node=worker-{number}"),
            // All gateways are on loopback, and there is one organisation: the best that this machine gives.
            "--sandbox-require=C".to_owned(),
            "--allow-local-paths".to_owned(),
            format!("--hide={}", data.display()),
        ];
        words.extend(args.blobs.words(data));
        words.extend(args.traces.words());
        words.extend(args.network.words());
        words.extend(args.disk.words());
        match args.workspace_disk {
            Disk::Shared => {
                words.push(format!("--data-dir={}", data.display()));
                let given = args.workspace_dir.iter();
                words.extend(given.map(|dir| format!("--workspace-dir={}", dir.display())));
            }
            Disk::Own => {
                let given = args.workspace_dir.clone();
                let all = given.unwrap_or_else(|| data.join("workspaces"));
                let own = all.join(format!("worker-{number}"));
                words.push(format!("--workspace-dir={}", own.display()));
                words.push("--workspace-disk=own".to_owned());
                let its_data = data.join(format!("worker-{number}"));
                words.push(format!("--data-dir={}", its_data.display()));
                // For directories of this machine, which all workers see.
                words.push(format!("--lock-dir={}", data.join("locks").display()));
            }
        }
        words.extend(self.cluster.iter().chain(&self.model).cloned());
        let variables = with_nats(self.with_providers(), nats);
        let (name, url) = (format!("worker-{number}"), format!("http://127.0.0.1:{port}"));
        Ok(Process::new(name, "worker", url, words, variables))
    }

    /// The gateway with this number, from 0 on. The first one has the port of `args`.
    ///
    /// # Errors
    /// When no port is free.
    pub(super) fn gateway(
        &self,
        args: &ClusterCommand,
        data: &Path,
        number: u16,
        nats: String,
    ) -> Result<Process, ServeError> {
        let port = if number == 0 { args.port } else { second_port(args.port, number)? };
        let mut words =
            vec!["gateway".to_owned(), format!("--port={port}"), "--allow-local-paths".to_owned()];
        words.extend(args.blobs.words(data));
        words.extend(args.traces.words());
        words
            .push(format!("--data-dir={}", data.join(format!("gateway-{}", number + 1)).display()));
        words.extend(args.uploads.words());
        words.extend(args.disk.reserve.words());
        if let Ok(here) = std::env::current_dir() {
            words.push(format!("--directory={}", here.display()));
        }
        words.extend(self.cluster.iter().chain(&self.model).cloned());
        let name = format!("gateway-{}", number + 1);
        let url = format!("http://127.0.0.1:{port}");
        let variables = with_nats(self.with_providers(), nats);
        Ok(Process::new(name, "gateway", url, words, variables))
    }

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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        cluster: ClusterCommand,
    }

    // Sessions of two workers may run in one directory of this machine, and its lock parts them.
    #[test]
    fn workers_with_own_disks_share_locks_and_nothing_else() {
        let args = Line::parse_from(["dev-cluster", "--workspace-disk=own"]).cluster;
        let (members, cluster, model) = (Vec::new(), Vec::new(), Vec::new());
        let (variables, providers, secret) = (Vec::new(), Vec::new(), String::new());
        let roles = Roles { members, cluster, model, variables, providers, secret };
        let value_of = |number, name: &str| {
            let worker = roles.worker(&args, Path::new("/d"), number, String::new());
            let words = worker.expect("a port").args;
            let value = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            value.expect("the option").to_owned()
        };
        for number in [1, 2] {
            assert_eq!(value_of(number, "--lock-dir"), "/d/locks");
            assert_eq!(value_of(number, "--data-dir"), format!("/d/worker-{number}"));
            assert_eq!(
                value_of(number, "--workspace-dir"),
                format!("/d/workspaces/worker-{number}")
            );
        }
    }
}
