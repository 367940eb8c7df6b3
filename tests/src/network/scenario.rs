//! Runs each fault in turn under load, then the verdict over all of them.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use domain::{Clock, SystemClock};
use rustix::process::Signal;
use simulated_model::SimulatedModel;
use tokio::time::{Instant, sleep};

use super::lab::{DRIVER, cut, cut_one_way, heal, vanish_flows};
use super::load::Load;
use super::roles::Roles;
use crate::faults::PromptFates;
use crate::oracle::oracle;
use crate::process::run;
use crate::settle::eventually;

/// The longest time without an ended turn while the required parts reach each other.
const LONGEST_SILENCE: Duration = Duration::from_secs(5);
/// The number of clients that prompt in parallel.
const CLIENTS: usize = 8;
/// How long everything works between two scenarios.
const REST: Duration = Duration::from_secs(4);

/// A fault that lasts for a while.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    lasts: Duration,
    fault: Fault,
    /// Whether a majority of members, Postgres, a worker and a gateway always reach each other.
    goes_on: bool,
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Cuts the leader off from these hosts, both ways.
    LeaderFrom(&'static [&'static str]),
    /// Drops everything from other members to the leader.
    LeaderDeaf,
    /// Drops everything from the leader to other members.
    LeaderMute,
    /// Cuts a follower off from the other members.
    FollowerFromMembers,
    /// Cuts the two followers off from each other.
    FollowersApart,
    /// Cuts one host off from these, both ways.
    From(&'static str, &'static [&'static str]),
    /// Lets the worker reach no member of placement except the leader.
    WorkerReachesOnlyTheLeader,
    /// Drops all open flows between two hosts silently.
    FlowsLost(&'static str, &'static str),
    /// Kills a follower and empties its folder.
    FollowerLosesItsFolder,
    /// Fills a follower's disk.
    FollowerDiskFull,
    /// Stops a process and lets it continue.
    Stopped(&'static str),
}

const fn scenario(name: &'static str, seconds: u64, fault: Fault, goes_on: bool) -> Scenario {
    Scenario { name, lasts: Duration::from_secs(seconds), fault, goes_on }
}

/// All scenarios, in the order in which they run.
pub const SCENARIOS: &[Scenario] = &[
    scenario("leader-from-members", 12, Fault::LeaderFrom(&["p1", "p2", "p3"]), true),
    scenario("leader-deaf", 12, Fault::LeaderDeaf, true),
    scenario("leader-mute", 12, Fault::LeaderMute, true),
    scenario("follower-from-members", 10, Fault::FollowerFromMembers, true),
    scenario("followers-apart", 10, Fault::FollowersApart, true),
    scenario(
        "leader-from-workers-and-gateways",
        20,
        Fault::LeaderFrom(&["w1", "w2", "w3", "g1", "g2"]),
        true,
    ),
    scenario("leader-from-workers", 20, Fault::LeaderFrom(&["w1", "w2", "w3"]), true),
    scenario("leader-from-postgres", 12, Fault::LeaderFrom(&["pg"]), true),
    scenario("worker-from-placement", 12, Fault::From("w1", &["p1", "p2", "p3"]), true),
    scenario("worker-reaches-only-the-leader", 15, Fault::WorkerReachesOnlyTheLeader, true),
    scenario("worker-from-postgres-10s", 10, Fault::From("w1", &["pg"]), true),
    scenario("worker-from-postgres-40s", 40, Fault::From("w2", &["pg"]), true),
    scenario(
        "worker-from-everything",
        12,
        Fault::From("w3", &["pg", "nats", "p1", "p2", "p3", "g1", "g2"]),
        true,
    ),
    scenario("worker-from-nats", 10, Fault::From("w1", &["nats"]), true),
    scenario("gateway-from-postgres", 15, Fault::From("g1", &["pg"]), true),
    scenario("gateway-from-placement", 10, Fault::From("g2", &["p1", "p2", "p3"]), true),
    scenario(
        "nats-from-everybody",
        10,
        Fault::From("nats", &["p1", "p2", "p3", "w1", "w2", "w3", "g1", "g2"]),
        true,
    ),
    scenario("worker-postgres-flows-lost", 20, Fault::FlowsLost("w1", "pg"), true),
    scenario("gateway-postgres-flows-lost", 20, Fault::FlowsLost("g1", "pg"), true),
    scenario("placement-flows-lost", 15, Fault::FlowsLost("w2", "p1"), true),
    scenario("worker-stopped", 8, Fault::Stopped("w1"), true),
    scenario("gateway-stopped", 8, Fault::Stopped("g1"), true),
    scenario("postgres-stopped-10s", 10, Fault::Stopped("pg"), false),
    scenario("nats-stopped", 8, Fault::Stopped("nats"), true),
    scenario("follower-disk-full", 15, Fault::FollowerDiskFull, true),
    scenario("follower-loses-its-folder", 15, Fault::FollowerLosesItsFolder, true),
];

/// One scenario's result.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The scenario's name.
    pub name: &'static str,
    /// The longest time without an ended turn during the fault.
    pub silence: Duration,
    /// The time from the repair to the next ended turn.
    pub after: Duration,
    /// The number of turns that ended during the fault.
    pub turns: usize,
    /// Whether the promise was kept, if it applies.
    pub kept: bool,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:36} {:6.1} s longest silence, {:4.1} s after the heal, {:5} turns{}",
            self.name,
            self.silence.as_secs_f64(),
            self.after.as_secs_f64(),
            self.turns,
            if self.kept { "" } else { "  TOO LONG" }
        )
    }
}

struct Window {
    scenario: Scenario,
    from_ms: i64,
    to_ms: i64,
}

/// Runs the scenarios whose names contain `filter`, in a new lab.
///
/// # Errors
/// When the lab cannot be built, something acknowledged was lost, or a silence was too long.
pub async fn run_all(filter: &str, say: &mut dyn FnMut(&str)) -> Result<Vec<Outcome>> {
    let folder = testkit::temp_folder()?;
    let bind = (DRIVER, 0).into();
    let options = simulated_model::Options { bind, ..simulated_model::Options::default() };
    let model = SimulatedModel::start(options).await?;
    let mut roles = Roles::start(folder.path(), model.addr.port()).await?;
    let gateways = roles.gateways()?;
    let mut load = Load::start(&gateways, CLIENTS);
    sleep(REST).await;
    let clock = SystemClock::new();
    let (mut windows, mut faults) = (Vec::new(), Vec::new());
    for scenario in SCENARIOS.iter().filter(|it| it.name.contains(filter)) {
        say(scenario.name);
        let from_ms = clock.now_ms();
        let done = inflict(&mut roles, *scenario).await;
        heal()?;
        let to_ms = clock.now_ms();
        windows.push(Window { scenario: *scenario, from_ms, to_ms });
        if let Err(error) = done.and(recover(&mut roles).await) {
            faults.push(format!("{}: {error:#}", scenario.name));
        }
        sleep(REST).await;
    }
    load.stop().await?;
    let mut ended = Vec::new();
    for (session, acknowledged) in load.acknowledged() {
        let log = gateways[0].log(&session).await?;
        let fates = PromptFates::of(&log);
        for message in acknowledged {
            if let Err(fault) = fates.kept(&message) {
                faults.push(format!("acknowledged {message} of {session}: {fault}"));
            }
        }
        let settled = log.iter().filter(|event| event["type"] == "turn.settled");
        ended.extend(settled.filter_map(|event| event["time"].as_i64()));
    }
    ended.sort_unstable();
    if let Err(error) = oracle(&gateways[0], &model.handle).await {
        faults.push(format!("oracle: {error:#}"));
    }
    let outcomes: Vec<Outcome> = windows.iter().map(|window| judge(window, &ended)).collect();
    for outcome in &outcomes {
        say(&outcome.to_string());
    }
    let logs = roles.logs();
    roles.stop().await?;
    let late = outcomes.iter().filter(|outcome| !outcome.kept);
    faults.extend(late.map(|outcome| format!("{}: too long without a turn", outcome.name)));
    if !faults.is_empty() {
        let kept = std::env::temp_dir().join(format!("network-run-{}", std::process::id()));
        let copied = run("cp", &["-r", &logs.display().to_string(), &kept.display().to_string()]);
        copied.context("the logs cannot be kept")?;
        say(&format!("logs are in {}", kept.display()));
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(outcomes)
}

/// Applies a fault for its duration. The caller repairs the network.
async fn inflict(roles: &mut Roles, scenario: Scenario) -> Result<()> {
    let members = ["p1", "p2", "p3"];
    let leader = roles.leader().await?;
    let followers: Vec<&str> = members.into_iter().filter(|it| *it != leader).collect();
    let until = Instant::now() + scenario.lasts;
    match scenario.fault {
        Fault::LeaderFrom(hosts) => {
            hosts.iter().filter(|it| **it != leader).try_for_each(|host| cut(&leader, host))?;
        }
        Fault::LeaderDeaf => followers.iter().try_for_each(|it| cut_one_way(it, &leader))?,
        Fault::LeaderMute => followers.iter().try_for_each(|it| cut_one_way(&leader, it))?,
        Fault::FollowerFromMembers => {
            members
                .into_iter()
                .filter(|it| *it != followers[0])
                .try_for_each(|it| cut(followers[0], it))?;
        }
        Fault::FollowersApart => cut(followers[0], followers[1])?,
        Fault::From(host, others) => others.iter().try_for_each(|other| cut(host, other))?,
        Fault::WorkerReachesOnlyTheLeader => {
            followers.iter().try_for_each(|follower| cut("w2", follower))?;
            // A short cut to the leader, after which the worker must find the leader again.
            cut("w2", &leader)?;
            sleep(Duration::from_secs(1)).await;
            heal()?;
            followers.iter().try_for_each(|follower| cut("w2", follower))?;
        }
        Fault::FlowsLost(from, to) => {
            let lost = vanish_flows(from, to)?;
            ensure!(lost > 0 || to != "pg", "{from} had no flow to {to}");
        }
        Fault::FollowerLosesItsFolder => return lose_folder(roles, followers[0], until).await,
        Fault::FollowerDiskFull => return fill_disk(roles, followers[0], until).await,
        Fault::Stopped(host) => {
            roles.signal_host(host, Signal::STOP)?;
            sleep(until.saturating_duration_since(Instant::now())).await;
            return roles.signal_host(host, Signal::CONT);
        }
    }
    while Instant::now() < until {
        roles.restart_ended().await?;
        sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Empties a member's folder. It must not come back under its number: it is removed, and added again as documented.
async fn lose_folder(roles: &mut Roles, follower: &str, until: Instant) -> Result<()> {
    roles.signal(follower, Signal::KILL, true)?;
    eventually("it is dead", 10, async || Ok((!roles.runs(follower).await).then_some(()))).await?;
    let folder = roles.member_folder(follower);
    // The folder of another scenario may be a disk of its own, which cannot be removed.
    if fs::metadata(&folder)?.dev() != fs::metadata(folder.parent().context("a parent")?)?.dev() {
        run("umount", &[&folder.display().to_string()])?;
    }
    fs::remove_dir_all(&folder)?;
    roles.start_one(follower)?;
    sleep(until.saturating_duration_since(Instant::now())).await;
    let refused = !roles.runs(follower).await && roles.tail(follower).contains("placement remove");
    ensure!(refused, "{follower} was taken back with an empty folder: {}", roles.tail(follower));
    Ok(())
}

/// Fills the member's disk: its log has six megabytes, and another file takes all of them.
async fn fill_disk(roles: &mut Roles, follower: &str, until: Instant) -> Result<()> {
    let folder = roles.member_folder(follower).display().to_string();
    roles.signal(follower, Signal::KILL, true)?;
    eventually("it is dead", 10, async || Ok((!roles.runs(follower).await).then_some(()))).await?;
    let aside = format!("{folder}-aside");
    run("mv", &[&folder, &aside])?;
    run("mkdir", &[&folder])?;
    run("mount", &["-t", "tmpfs", "-o", "size=24m", "tmpfs", &folder])?;
    run("cp", &["-a", &format!("{aside}/."), &folder])?;
    let filler = format!("{folder}/filler");
    // It ends with "no space left" on purpose.
    let _full = run("dd", &["if=/dev/zero", &format!("of={filler}"), "bs=64k"]);
    roles.start_one(follower)?;
    sleep(until.saturating_duration_since(Instant::now())).await;
    fs::remove_file(&filler)?;
    Ok(())
}

/// Restarts ended processes, and waits until placement has a leader again.
async fn recover(roles: &mut Roles) -> Result<()> {
    roles.leave_none_alone();
    roles.restart_ended().await?;
    roles.leader().await.map(|_| ())
}

fn judge(window: &Window, ended: &[i64]) -> Outcome {
    let Window { scenario, from_ms, to_ms } = window;
    let inside: Vec<i64> =
        ended.iter().copied().filter(|at| (*from_ms..=*to_ms).contains(at)).collect();
    let mut silence = 0;
    let mut last = *from_ms;
    for at in inside.iter().copied().chain([*to_ms]) {
        silence = silence.max(at - last);
        last = at;
    }
    let after = ended.iter().find(|at| *at > to_ms).map_or(0, |at| at - to_ms);
    let span = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    Outcome {
        name: scenario.name,
        silence: span(silence),
        after: span(after),
        turns: inside.len(),
        kept: !scenario.goes_on || span(silence) <= LONGEST_SILENCE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_silence_counts_from_the_fault_to_the_heal() {
        let scenario = SCENARIOS[0];
        let window = Window { scenario, from_ms: 1_000, to_ms: 9_000 };
        let outcome = judge(&window, &[500, 2_000, 3_000, 8_500, 9_250]);
        assert_eq!(outcome.silence, Duration::from_millis(5_500));
        assert_eq!((outcome.turns, outcome.after), (3, Duration::from_millis(250)));
        assert!(!outcome.kept);
        assert!(judge(&window, &[2_000, 5_000, 8_000]).kept);
        assert!(!judge(&window, &[]).kept);
    }
}
