//! The processes of the cluster, each in its namespace, restarted when they end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use placement_api::{PlacementAdmin, Status};
use rustix::process::{Signal, kill_process};

use super::lab::{DRIVER, address, namespace, processes};
use crate::api::Api;
use crate::executable::executable;
use crate::postgres::{init_postgres, postgres_words};
use crate::process::{Process, known, run};
use crate::settle::eventually;
use crate::world::KEY;

const SECRET: &str = "a secret of this lab and of no other place";
const PASSWORD: &str = "a-password-of-this-lab";

/// A cluster in the lab.
#[derive(Debug)]
pub(crate) struct Roles {
    folder: PathBuf,
    program: PathBuf,
    model_url: String,
    running: BTreeMap<String, Process>,
    /// Hosts whose ended process is not restarted.
    left_alone: Vec<String>,
}

impl Roles {
    /// Starts Postgres, NATS and all roles, and waits until both gateways are ready.
    pub(crate) async fn start(folder: &Path, model_port: u16) -> Result<Self> {
        let mut roles = Self {
            folder: folder.to_owned(),
            program: executable()?,
            model_url: format!("http://{DRIVER}:{model_port}/v1"),
            running: BTreeMap::new(),
            left_alone: Vec::new(),
        };
        roles.start_postgres().await?;
        for host in ["nats", "p1", "p2", "p3"] {
            roles.start_one(host)?;
        }
        roles.found().await?;
        for host in ["w1", "w2", "w3", "g1", "g2"] {
            roles.start_one(host)?;
        }
        for gateway in roles.gateways()? {
            eventually("a gateway is ready", 60, async || {
                Ok(gateway.is_ready().await.then_some(()))
            })
            .await?;
        }
        Ok(roles)
    }

    /// Returns both gateways.
    pub(crate) fn gateways(&self) -> Result<Vec<Api>> {
        let api = |host| Api::new(&format!("http://{}:4096", address(host)), KEY);
        ["g1", "g2"].into_iter().map(api).collect()
    }

    /// Returns the folder of the logs.
    pub(crate) fn logs(&self) -> PathBuf {
        self.folder.join("logs")
    }

    /// Returns the folder of a placement member.
    pub(crate) fn member_folder(&self, host: &str) -> PathBuf {
        self.folder.join(host)
    }

    /// Restarts ended processes, except on the hosts in `left_alone`.
    pub(crate) async fn restart_ended(&mut self) -> Result<()> {
        let mut ended = Vec::new();
        for (host, process) in &mut self.running {
            if !process.is_running().await && !self.left_alone.contains(host) {
                ended.push(host.clone());
            }
        }
        ended.iter().try_for_each(|host| self.start_one(host))
    }

    /// Signals the process of a host. With `stays_down` it is not restarted.
    pub(crate) fn signal(&mut self, host: &str, signal: Signal, stays_down: bool) -> Result<()> {
        if stays_down {
            self.left_alone.push(host.to_owned());
        }
        let process = self.running.get(host).with_context(|| format!("{host} does not run"))?;
        kill_process(known(process.pid())?, signal).with_context(|| format!("signal {host}"))
    }

    /// Stops or continues all processes of a host: a Postgres whose first process alone stops goes on serving.
    pub(crate) fn signal_host(&self, host: &str, signal: Signal) -> Result<()> {
        for pid in processes(host)? {
            kill_process(known(pid)?, signal).with_context(|| format!("signal {host}"))?;
        }
        Ok(())
    }

    /// Lets the ended processes of all hosts be restarted again.
    pub(crate) fn leave_none_alone(&mut self) {
        self.left_alone.clear();
    }

    /// Returns whether the process of a host runs.
    pub(crate) async fn runs(&mut self, host: &str) -> bool {
        match self.running.get_mut(host) {
            Some(process) => process.is_running().await,
            None => false,
        }
    }

    /// Returns the end of the output of a host's process.
    pub(crate) fn tail(&self, host: &str) -> String {
        self.running.get(host).map(Process::tail).unwrap_or_default()
    }

    /// Returns placement's own status.
    pub(crate) async fn placement(&self) -> Result<Status> {
        Ok(PlacementAdmin::new(peer_urls(), Some(SECRET.to_owned())).status().await?)
    }

    /// Returns the host of placement's leader.
    pub(crate) async fn leader(&self) -> Result<String> {
        eventually("placement has a leader", 30, async || {
            let Ok(status) = self.placement().await else { return Ok(None) };
            Ok(status.leader.map(|id| format!("p{id}")))
        })
        .await
    }

    async fn start_postgres(&mut self) -> Result<()> {
        let data = self.folder.join("pg");
        fs::create_dir_all(&data)?;
        init_postgres(&data)?;
        let hba = "local all all trust\nhost all all 10.88.0.0/24 trust\n";
        fs::write(data.join("pg_hba.conf"), hba)?;
        let listen = format!("listen_addresses={}", address("pg"));
        let mut words =
            postgres_words(&data, &[&listen, "unix_socket_directories=", "max_connections=300"])?;
        let program = words.remove(0);
        self.spawn("pg", &program, words)?;
        let admin = format!("postgres://postgres@{}:5432/postgres", address("pg"));
        eventually("Postgres takes connections", 30, async || {
            Ok(run("psql", &["-qc", "SELECT 1", &admin]).is_ok().then_some(()))
        })
        .await?;
        run("psql", &["-qc", "CREATE DATABASE opencode_cloud", &admin])?;
        let program = self.program.display().to_string();
        let url = format!("--database-url={}", database("postgres"));
        let migrate = format!("--migrate-password={PASSWORD}-migrate");
        let serve = format!("--serve-password={PASSWORD}-serve");
        run(&program, &["migrate", &url, &migrate, &serve])?;
        Ok(())
    }

    async fn found(&self) -> Result<()> {
        let members: Vec<String> =
            peer_urls().iter().zip(1..).map(|(url, id)| format!("{id}={url}")).collect();
        let url = format!("--database-url={}", database("oc_migrate"));
        let peers = format!("--placement-peers={}", peer_urls().join(","));
        let secret = format!("--cluster-secret={SECRET}");
        let program = self.program.display().to_string();
        eventually("placement is founded", 30, async || {
            let mut words = vec!["placement", "init", &url, &peers, &secret];
            words.extend(members.iter().map(String::as_str));
            Ok(run(&program, &words).is_ok().then_some(()))
        })
        .await
    }

    /// Starts the process of a host, even if it has run before.
    pub(crate) fn start_one(&mut self, host: &str) -> Result<()> {
        if host == "nats" {
            let words = ["-a".to_owned(), address("nats").to_string(), "-p".into(), "4222".into()];
            return self.spawn(host, "nats-server", words.to_vec());
        }
        let bind = format!("--bind={}", address(host));
        let number = host.trim_start_matches(char::is_alphabetic);
        let mut words: Vec<String> = match &host[..1] {
            "p" => {
                let folder = format!("--data-dir={}", self.member_folder(host).display());
                let id = format!("--id={number}");
                vec!["placement".into(), "serve".into(), id, bind, folder]
            }
            "w" => {
                let folder = format!("--data-dir={}", self.folder.join("shared").display());
                vec!["worker".into(), format!("--node={host}"), bind, folder]
            }
            _ => {
                // The oracle needs it.
                let blobs =
                    format!("--blob-url=file://{}", self.folder.join("shared/blobs").display());
                vec!["gateway".into(), bind, blobs, format!("--bootstrap-key={KEY}")]
            }
        };
        words.extend([
            format!("--database-url={}", database("oc_app")),
            format!("--nats-url=nats://{}:4222", address("nats")),
            format!("--placement-peers={}", peer_urls().join(",")),
            format!("--cluster-secret={SECRET}"),
        ]);
        if !host.starts_with('p') {
            words.extend([
                format!("--model-url={}", self.model_url),
                "--model-provider=simulated".into(),
                "--model=echo".into(),
            ]);
        }
        let program = self.program.display().to_string();
        self.spawn(host, &program, words)
    }

    fn spawn(&mut self, host: &str, program: &str, words: Vec<String>) -> Result<()> {
        let mut args = vec!["netns".to_owned(), "exec".into(), namespace(host), program.to_owned()];
        args.extend(words);
        fs::create_dir_all(self.logs())?;
        let process = Process::start(host, Path::new("/usr/sbin/ip"), &args, &[], &self.logs())
            .or_else(|_| Process::start(host, Path::new("/sbin/ip"), &args, &[], &self.logs()))?;
        self.running.insert(host.to_owned(), process);
        Ok(())
    }

    /// Stops gateways and workers in order, then everything else.
    pub(crate) async fn stop(mut self) -> Result<()> {
        for host in ["g1", "g2", "w1", "w2", "w3", "p1", "p2", "p3", "nats", "pg"] {
            let signal = if host == "pg" { Signal::INT } else { Signal::TERM };
            if let Some(mut process) = self.running.remove(host) {
                process.signal(signal)?;
                process.wait(Duration::from_secs(60)).await?;
            }
        }
        for member in ["p1", "p2", "p3"] {
            // Only the member whose disk was filled has a mount.
            let _not_mounted = run("umount", &[&self.member_folder(member).display().to_string()]);
        }
        Ok(())
    }
}

fn peer_urls() -> Vec<String> {
    ["p1", "p2", "p3"].map(|host| format!("http://{}:4301", address(host))).to_vec()
}

fn database(user: &str) -> String {
    format!("postgres://{user}@{}:5432/opencode_cloud", address("pg"))
}
