//! One fault run, from an empty folder to a verdict.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;
use tasks::CancellationToken;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::client::Client;
use super::coverage::Coverage;
use super::follower::follow;
use super::hostile::{Act, Hostile, WORKSPACE, script_odd_counts};
use super::injector::{Injector, tell};
use super::judge::{is_busy, judge_effects, judge_processes, judge_session, judge_usage};
use super::plan::plan;
use super::reborn::{MARKER, Reborn, is_reborn, judge_life, judge_lines, note_left};
use super::shared::{Shared, locked};
use crate::api::Api;
use crate::cluster::Cluster;
use crate::oracle::{Verdict, oracle_without};
use crate::settle::{eventually, within};
use crate::world::World;

/// No verdict: planned faults had no effect. Lists each with its number and the required one. No violation was found;
/// run again with another seed.
#[derive(Debug)]
pub struct NotExercised(pub Vec<String>);

impl fmt::Display for NotExercised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not exercised: {}", self.0.join(", "))
    }
}

impl std::error::Error for NotExercised {}

/// How long the last prompts may take to be acknowledged after the last fault.
const LAST_PROMPTS_SECONDS: u64 = 100;
/// How long everything may take to settle after that: waiting prompts run, on a disk that may be slow.
const SETTLE_SECONDS: u64 = 75;
/// The number of clients that delete their session and create it again.
const REBORN: usize = 2;

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct FaultRun {
    /// The seed of all choices.
    pub seed: u64,
    /// Rounds of faults, each some 25 s.
    pub rounds: u32,
    /// Sessions, each with a client and a follower.
    pub sessions: usize,
    /// Locations that they share, at least 1.
    pub locations: usize,
    /// The folder for logs and rows if the run fails.
    pub keep: Option<PathBuf>,
}

/// The report of a run that passed.
#[derive(Debug, Clone)]
pub struct Report {
    /// The run's seed.
    pub seed: u64,
    /// How long faults lasted.
    pub faults: Duration,
    /// The time from the last fault until nothing was left to do.
    pub settled: Duration,
    /// The number of acknowledged prompts.
    pub acknowledged: usize,
    /// The oracle's counts.
    pub verdict: Verdict,
    /// The observations.
    pub coverage: Coverage,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, faults, settled, acknowledged, verdict, coverage } = self;
        write!(
            f,
            "seed {seed}: {:.1} s of faults, settled {:.1} s later; {acknowledged} prompts acknowledged; \
             {verdict:?}; seen: {coverage}",
            faults.as_secs_f64(),
            settled.as_secs_f64()
        )
    }
}

impl FaultRun {
    /// Runs it: a fresh cluster, faults, rest, oracle, verdict.
    ///
    /// # Errors
    /// Every violation; or that a kind of fault was not exercised; or that the cluster did not start or did not
    /// settle.
    pub async fn run(&self) -> Result<Report> {
        tell(&format!("seed {}", self.seed));
        let world = World::new().await?;
        let cluster = world.cluster(&[WORKSPACE]).await?;
        let ended = Box::pin(self.attempt(&world, &cluster)).await;
        if let (Err(_), Some(folder)) = (&ended, &self.keep) {
            let folder = folder.join(format!("seed-{}", self.seed));
            keep(&world, cluster.gateway(0), &folder).await?;
            tell(&format!("logs and rows are in {}", folder.display()));
        }
        let report = ended.with_context(|| format!("fault run with seed {}", self.seed))?;
        cluster.stop(&world).await?;
        Ok(report)
    }

    async fn attempt(&self, world: &World, cluster: &Cluster) -> Result<Report> {
        let locations: Vec<PathBuf> = (0..self.locations.max(1))
            .map(|number| world.workspace(&format!("location-{number}")))
            .collect::<Result<_>>()?;
        let mut sessions = Vec::new();
        for number in 0..self.sessions {
            let at = &locations[number % locations.len()];
            sessions.push(cluster.gateway(number % 2).session(at).await?);
        }
        let gateways: Vec<Api> = (0..2).map(|number| cluster.gateway(number).clone()).collect();
        let project = cluster.gateway(0).project(&locations[0]).await?;
        let shared = Arc::new(Shared::new(gateways, world.model().clone(), project, sessions));

        let (no_more, the_end) = (CancellationToken::new(), CancellationToken::new());
        let (mut clients, mut followers) = (JoinSet::new(), JoinSet::new());
        for session in 0..self.sessions {
            let random =
                |what: u64| StdRng::seed_from_u64(self.seed ^ (what << 32) ^ session as u64);
            let client = Client::new(shared.clone(), session, random(1));
            clients.spawn(client.run(no_more.clone()));
            followers.spawn(follow(shared.clone(), session, random(2), the_end.clone()));
        }
        let mut lives = JoinSet::new();
        for number in 0..REBORN {
            let random = StdRng::seed_from_u64(self.seed ^ (4 << 32) ^ number as u64);
            let client = Reborn::new(shared.clone(), locations[0].clone(), number, random);
            lives.spawn(client.run(no_more.clone()));
        }
        script_odd_counts(&shared.model)?;
        for (number, act) in Act::ALL.into_iter().enumerate() {
            let random = StdRng::seed_from_u64(self.seed ^ (5 << 32) ^ number as u64);
            let directory = world.workspace(&format!("hostile-{}", act.name()))?;
            let project = cluster.gateway(0).project(&directory).await?;
            let neighbour = Hostile::new(shared.clone(), act, (directory, project), random);
            lives.spawn(neighbour.run(no_more.clone()));
        }
        let begun = Instant::now();
        let random = StdRng::seed_from_u64(self.seed ^ (3 << 32));
        let injector = Injector::new(cluster, world, shared.clone(), random);
        Box::pin(injector.run(&plan(self.seed, self.rounds))).await?;
        let faults = begun.elapsed();

        no_more.cancel();
        within("the last prompts are acknowledged", LAST_PROMPTS_SECONDS, async {
            while let Some(ended) = clients.join_next().await {
                ended.context("a client panicked")?;
            }
            while let Some(left) = lives.join_next().await {
                note_left(&shared, left.context("a client panicked")?);
            }
            Ok(())
        })
        .await?;
        settle(&shared).await?;
        let settled = begun.elapsed() - faults;
        let logs = logs(&shared).await?;
        let caught_up = eventually("followers have the whole log", 60, async || {
            let has_all = |(followed, log): (&std::sync::Mutex<_>, &Vec<Value>)| {
                let followed: &super::shared::Followed = &locked(followed);
                followed.events.len() >= log.len()
            };
            Ok(shared.followed.iter().zip(&logs).all(has_all).then_some(()))
        });
        // A follower that never catches up is reported below.
        let _told_below = caught_up.await;
        the_end.cancel();
        while let Some(ended) = followers.join_next().await {
            ended.context("a follower panicked")?;
        }
        let verdict = self.verdict(world, &shared, &locations, &logs).await?;
        let acknowledged = locked(&shared.acknowledged).len();
        let coverage = shared.coverage();
        Ok(Report { seed: self.seed, faults, settled, acknowledged, verdict, coverage })
    }

    async fn verdict(
        &self,
        world: &World,
        shared: &Shared,
        locations: &[PathBuf],
        logs: &[Vec<Value>],
    ) -> Result<Verdict> {
        for (session, log) in logs.iter().enumerate() {
            judge_session(shared, session, log);
        }
        for (number, location) in locations.iter().enumerate() {
            let of_location = logs.iter().skip(number).step_by(locations.len());
            let of_location: Vec<&[Value]> = of_location.map(Vec::as_slice).collect();
            judge_effects(shared, location, &of_location);
        }
        let lives = locked(&shared.lives).clone();
        for life in &lives {
            judge_life(shared, life).await?;
        }
        judge_lines(shared, &locations[0]);
        judge_processes(shared, world).await?;
        judge_usage(shared, world).await?;
        // Requests of deleted sessions have no rows any more.
        let without = (MARKER, is_reborn as fn(&str) -> bool);
        let asked = oracle_without(&shared.gateways[0], &shared.model, without).await;
        if let Err(error) = &asked {
            shared.violated(format!("oracle: {error:#}"));
        }
        let violations = shared.violations();
        ensure!(
            violations.is_empty(),
            "{} violations (seen: {}):\n{}",
            violations.len(),
            shared.coverage(),
            violations.join("\n")
        );
        let missing = shared.coverage().missing(&plan(self.seed, self.rounds));
        if !missing.is_empty() {
            return Err(NotExercised(missing).into());
        }
        asked
    }
}

async fn settle(shared: &Shared) -> Result<()> {
    eventually("everything comes to rest", SETTLE_SECONDS, async || {
        // A gateway may be just restarting.
        let Ok(sessions) = shared.gateways[0].sessions().await else { return Ok(None) };
        Ok((!is_busy(&sessions)).then_some(()))
    })
    .await
}

async fn logs(shared: &Shared) -> Result<Vec<Vec<Value>>> {
    let mut logs = Vec::new();
    for session in &shared.sessions {
        logs.push(shared.gateways[0].log(session).await?);
    }
    Ok(logs)
}

/// Keeps the files that help to find the reason.
async fn keep(world: &World, api: &Api, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for logs in [world.logs(), world.data().join("logs")] {
        for entry in fs::read_dir(logs)? {
            let entry = entry?;
            fs::copy(entry.path(), folder.join(entry.file_name()))?;
        }
    }
    for entry in fs::read_dir(world.folder().join("work"))? {
        let location = entry?;
        let to = folder.join(format!("{}-effects.txt", location.file_name().to_string_lossy()));
        let _none_yet = fs::copy(location.path().join(super::workload::EFFECTS), to);
    }
    for session in api.sessions().await.unwrap_or_default() {
        let Some(id) = session["id"].as_str() else { continue };
        let log = api.log(id).await.unwrap_or_default();
        let lines: Vec<String> = log.iter().map(Value::to_string).collect();
        fs::write(folder.join(format!("{id}.jsonl")), lines.join("\n"))?;
        fs::write(folder.join(format!("{id}.json")), session.to_string())?;
    }
    Ok(())
}
