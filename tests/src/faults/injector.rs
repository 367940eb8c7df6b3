//! Carries out the plan on the cluster's processes, and notes the effects.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rustix::process::{Signal, kill_process};
use sqlx::{Connection, PgConnection};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::coverage::Sight;
use super::plan::{Fault, Step};
use super::shared::{Shared, locked};
use super::tool_processes::{ToolProcess, flag_of, tools_below};
use crate::cluster::{Cluster, Member};
use crate::process::known;
use crate::settle::eventually;
use crate::sql::superuser_url;
use crate::world::World;

/// A little more than twice the time after which placement gives up a silent worker.
const STOPPED: Duration = Duration::from_secs(5);
/// How long Postgres stalls: as long as an ordinary failover.
const STALLED: Duration = Duration::from_secs(10);
/// How long a zombie may take, once it continues, to find out that it is one.
const AWAKENING: Duration = Duration::from_secs(6);
/// How long a dead worker's tools may live on.
const ORPHANED: Duration = Duration::from_secs(10);
/// How long placement may be without a leader.
const LEADERLESS: Duration = Duration::from_secs(20);
/// How long to wait for a worker that runs a tool.
const AT_WORK: Duration = Duration::from_secs(6);
/// The service's role at the database.
const SERVICE_ROLE: &str = "oc_app";

pub(crate) struct Injector<'c> {
    cluster: &'c Cluster,
    world: &'c World,
    shared: Arc<Shared>,
    random: StdRng,
    /// The stopped workers.
    stopped: Arc<Mutex<HashSet<u32>>>,
    /// The tasks that watch zombies and orphans.
    watches: JoinSet<()>,
}

impl<'c> Injector<'c> {
    pub(crate) fn new(
        cluster: &'c Cluster,
        world: &'c World,
        shared: Arc<Shared>,
        random: StdRng,
    ) -> Self {
        let (stopped, watches) = Default::default();
        Self { cluster, world, shared, random, stopped, watches }
    }

    /// Carries out the whole plan, and waits until every stopped process has continued.
    pub(crate) async fn run(mut self, plan: &[Step]) -> Result<()> {
        for step in plan {
            sleep(step.after).await;
            let done = match step.fault {
                Fault::KillWorker => self.kill_worker().await,
                Fault::StopWorker => self.stop_worker().await,
                Fault::KillLeader => self.kill_leader().await,
                Fault::StopLeader => self.stop_leader().await,
                Fault::KillGateway => self.kill_gateway(),
                Fault::StopGateway => self.stop_gateway(),
                Fault::KillNats => self.kill_nats().await,
                Fault::KillBackends => self.kill_backends().await,
                Fault::StallPostgres => self.stall_postgres().await,
                Fault::CrashPostgres => self.crash_postgres().await,
            };
            // A victim that is just restarting does not end the run: coverage decides.
            if let Err(error) = done {
                tell(&format!("{:?} did not come about: {error:#}", step.fault));
            }
        }
        while self.watches.join_next().await.is_some() {}
        Ok(())
    }

    /// Waits for a worker with running tools, while at least two workers are free; after a while takes any worker.
    async fn worker_at_work(&mut self) -> Result<(Member, Vec<ToolProcess>)> {
        let deadline = Instant::now() + AT_WORK;
        loop {
            let stopped = locked(&self.stopped).clone();
            let workers = self.cluster.of("worker")?;
            let free: Vec<Member> =
                workers.into_iter().filter(|worker| !stopped.contains(&worker.pid)).collect();
            let pids: Vec<u32> = free.iter().map(|worker| worker.pid).collect();
            let mut tools = tools_below(&pids);
            let busy: Vec<&Member> =
                free.iter().filter(|worker| tools.contains_key(&worker.pid)).collect();
            if free.len() >= 2
                && let Some(worker) = busy.choose(&mut self.random)
            {
                return Ok(((*worker).clone(), tools.remove(&worker.pid).unwrap_or_default()));
            }
            if Instant::now() >= deadline {
                let worker = free.choose(&mut self.random).context("no worker runs")?;
                return Ok((worker.clone(), Vec::new()));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn kill_worker(&mut self) -> Result<()> {
        let (worker, tools) = self.worker_at_work().await?;
        self.cluster.signal(worker.pid, Signal::KILL)?;
        if !tools.is_empty() {
            self.shared.saw(Sight::WorkerKilledMidTurn);
        }
        let shared = self.shared.clone();
        self.watches.spawn(async move {
            let deadline = Instant::now() + ORPHANED;
            while tools.iter().any(ToolProcess::is_alive) {
                if Instant::now() >= deadline {
                    let left: Vec<_> = tools.iter().filter(|tool| tool.is_alive()).collect();
                    return shared.violated(format!(
                        "tools outlive worker {}, which was killed: {left:?}",
                        worker.pid
                    ));
                }
                sleep(Duration::from_millis(20)).await;
            }
        });
        Ok(())
    }

    async fn stop_worker(&mut self) -> Result<()> {
        let (worker, _) = self.worker_at_work().await?;
        let node = flag_of(worker.pid, "--node").context("a worker has a node's name")?;
        let log = self.world.data().join("logs").join(format!("{node}.log"));
        let shared = self.shared.clone();
        self.stop_for_a_while(worker.pid, async move {
            // Earlier lines do not count.
            let before = fenced_lines(&log);
            let deadline = Instant::now() + AWAKENING;
            while Instant::now() < deadline {
                if fenced_lines(&log) > before {
                    return shared.saw(Sight::ZombieFenced);
                }
                sleep(Duration::from_millis(50)).await;
            }
        })
    }

    /// Sends SIGSTOP now, and SIGCONT after twice the lease. `watch` starts a moment before that.
    fn stop_for_a_while(
        &mut self,
        pid: u32,
        watch: impl Future<Output = ()> + Send + 'static,
    ) -> Result<()> {
        self.cluster.signal(pid, Signal::STOP)?;
        locked(&self.stopped).insert(pid);
        let (shared, stopped) = (self.shared.clone(), self.stopped.clone());
        self.watches.spawn(async move {
            sleep(STOPPED).await;
            let go_on = async {
                sleep(Duration::from_millis(50)).await;
                if !matches!(known(pid).map(|pid| kill_process(pid, Signal::CONT)), Ok(Ok(()))) {
                    shared.violated(format!("the stopped process {pid} has ended"));
                }
                locked(&stopped).remove(&pid);
            };
            tokio::join!(watch, go_on);
        });
        Ok(())
    }

    /// Stops the leader. The group must elect another one, and the old leader must accept that.
    async fn stop_leader(&mut self) -> Result<()> {
        let leader = self.cluster.placement_leader().await?;
        self.stop_for_a_while(leader.pid, async {})?;
        let until = Instant::now() + STOPPED;
        while Instant::now() < until {
            let status = self.cluster.placement().await;
            if status.is_ok_and(|status| {
                status.leader == Some(status.id) && status.leader_url.as_ref() != Some(&leader.url)
            }) {
                self.shared.saw(Sight::StoppedLeaderReplaced);
                return Ok(());
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    fn stop_gateway(&mut self) -> Result<()> {
        let gateway = self.free("gateway")?;
        self.shared.saw(Sight::GatewayStopped);
        self.stop_for_a_while(gateway.pid, async {})
    }

    /// Returns any process of a role that is not stopped.
    fn free(&mut self, role: &str) -> Result<Member> {
        let stopped = locked(&self.stopped).clone();
        let members = self.cluster.of(role)?.into_iter();
        let free: Vec<Member> = members.filter(|member| !stopped.contains(&member.pid)).collect();
        free.choose(&mut self.random).cloned().with_context(|| format!("no {role} runs"))
    }

    /// Kills the leader. It may succeed itself: a leader that restarts within the election time continues its term.
    async fn kill_leader(&mut self) -> Result<()> {
        let leader = self.cluster.placement_leader().await?;
        self.cluster.signal(leader.pid, Signal::KILL)?;
        let deadline = Instant::now() + LEADERLESS;
        while Instant::now() < deadline {
            sleep(Duration::from_millis(100)).await;
            let Ok(status) = self.cluster.placement().await else { continue };
            let members = self.cluster.of("placement")?;
            let leads =
                members.iter().find(|member| Some(&member.url) == status.leader_url.as_ref());
            if leads.is_some_and(|member| member.pid != leader.pid)
                && status.leader == Some(status.id)
            {
                self.shared.saw(Sight::LeaderReplaced);
                return Ok(());
            }
        }
        self.shared.violated(format!("placement has no leader after {} s", LEADERLESS.as_secs()));
        Ok(())
    }

    fn kill_gateway(&mut self) -> Result<()> {
        let gateway = self.free("gateway")?;
        self.cluster.signal(gateway.pid, Signal::KILL)?;
        self.shared.saw(Sight::GatewayKilled);
        Ok(())
    }

    async fn kill_nats(&self) -> Result<()> {
        let nats = self.cluster.kill("nats", Signal::KILL)?;
        let host = nats.url.strip_prefix("nats://").context("NATS has a nats URL")?;
        for _ in 0..100 {
            if TcpStream::connect(host).await.is_err() {
                self.shared.saw(Sight::NatsDown);
                return Ok(());
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Opens a superuser's connection once Postgres accepts one, since it may be recovering.
    async fn superuser(&self) -> Result<PgConnection> {
        let url = superuser_url(&self.world.data())?;
        eventually("Postgres takes connections", 60, async || {
            Ok(PgConnection::connect(&url).await.ok())
        })
        .await
    }

    /// Terminates busy connections for a while; then sometimes all of the service's.
    async fn kill_backends(&mut self) -> Result<()> {
        let mut superuser = self.superuser().await?;
        let mut end = async |busy_only: bool| -> Result<usize> {
            let ended: Vec<(bool,)> = sqlx::query_as(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE usename = $1 AND (state <> 'idle' OR NOT $2)",
            )
            .bind(SERVICE_ROLE)
            .bind(busy_only)
            .fetch_all(&mut superuser)
            .await?;
            Ok(ended.into_iter().filter(|(sent,)| *sent).count())
        };
        let (mut busy, wanted) = (0, self.random.random_range(1..=4));
        let deadline = Instant::now() + Duration::from_secs(1);
        while busy < wanted && Instant::now() < deadline {
            busy += end(true).await?;
            sleep(Duration::from_millis(2)).await;
        }
        let idle = if self.random.random_bool(0.4) { end(false).await? } else { 0 };
        for _ in 0..busy {
            self.shared.saw(Sight::BusyBackendTerminated);
        }
        for _ in 0..busy + idle {
            self.shared.saw(Sight::BackendTerminated);
        }
        superuser.close().await?;
        Ok(())
    }

    /// Stops all of Postgres: its connections stay open, and nobody answers. Its work continues afterwards.
    async fn stall_postgres(&self) -> Result<()> {
        let stopped = self.cluster.stop_postgres()?;
        sleep(STALLED).await;
        self.cluster.go_on(&stopped);
        self.shared.saw(Sight::PostgresStalled);
        Ok(())
    }

    /// Kills one backend. Postgres then ends all others and recovers from its log, which must have everything
    /// acknowledged.
    async fn crash_postgres(&mut self) -> Result<()> {
        let mut superuser = self.superuser().await?;
        let (pid,): (i32,) = sqlx::query_as(
            "SELECT pid FROM pg_stat_activity WHERE usename = $1 ORDER BY state = 'idle', random() LIMIT 1",
        )
        .bind(SERVICE_ROLE)
        .fetch_one(&mut superuser)
        .await?;
        kill_process(known(u32::try_from(pid)?)?, Signal::KILL)?;
        for _ in 0..100 {
            sleep(Duration::from_millis(10)).await;
            if superuser.ping().await.is_err() {
                self.shared.saw(Sight::PostgresCrashed);
                // No other fault has an effect before it is back.
                self.superuser().await?.close().await?;
                return Ok(());
            }
        }
        Ok(())
    }
}

fn fenced_lines(log: &PathBuf) -> usize {
    fs::read_to_string(log).unwrap_or_default().matches("the drain was fenced").count()
}

/// Prints a line for people who watch the run.
pub(crate) fn tell(text: &str) {
    use std::io::Write;
    let _stderr_is_gone = writeln!(std::io::stderr(), "fault run: {text}");
}
