//! The sandbox that a service finds: what `up` and `doctor` say of it as root, as an ordinary user and where there are no user
//! namespaces, and what a session meets in it.

#![allow(clippy::print_stderr, reason = "a run says what it skipped, and why")]

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use journeys::{KEY, Up, World, another_organisation, events_of, executable, oracle, oracle_of};
use serde_json::{Value, json};
use simulated_model::{Script, ScriptedCall};
use tempfile::TempDir;

/// A user whom each system has, with a name, and with nothing of ours.
const SOMEBODY: u32 = 1;

/// Takes user namespaces away from an ordinary user, in one that is thrown away.
const WITHOUT_NAMESPACES: &str = "echo 0 >/proc/sys/user/max_user_namespaces && \
     exec setpriv --ambient-caps=-all --inh-caps=-all --bounding-set=-all \"$@\"";

/// Who starts the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Root,
    /// Root of a container that makes user namespaces, and no others.
    RootOfContainer,
    User,
    UserWithoutNamespaces,
}

impl Who {
    const ALL: [Self; 4] =
        [Self::Root, Self::RootOfContainer, Self::User, Self::UserWithoutNamespaces];

    /// The words before a command line that make it this one's.
    fn words(self) -> Vec<String> {
        let ids = [format!("--reuid={SOMEBODY}"), format!("--regid={SOMEBODY}")];
        let user = ["setpriv", &ids[0], &ids[1], "--clear-groups"];
        let without = ["unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c"];
        let words: Vec<&str> = match self {
            Self::Root => vec!["env"],
            Self::RootOfContainer => vec!["setpriv", "--bounding-set=-sys_admin"],
            // Whoever is no root is one already.
            Self::User if !is_root() => vec!["env"],
            Self::User => user.to_vec(),
            Self::UserWithoutNamespaces => {
                [&user[..], &without[..], &[WITHOUT_NAMESPACES, "sh"]].concat()
            }
        };
        words.into_iter().map(str::to_owned).collect()
    }

    /// The tier that must be shown by this one where it is promised: an ordinary user cannot become others.
    fn promised(self) -> &'static [&'static str] {
        match self {
            _ if !is_root() => &[],
            Self::Root => &["A"],
            Self::RootOfContainer | Self::User => &["B"],
            Self::UserWithoutNamespaces => &["C"],
        }
    }

    fn command(self, executable: &Path) -> Command {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(executable).env("HOME", "/nonexistent");
        command
    }

    /// The reason why this machine cannot show what this one meets.
    fn missing(self, executable: &Path) -> Result<Option<String>> {
        if !is_root() && self != Self::User {
            return Ok(Some("only root can become others".to_owned()));
        }
        let tried = self.command(executable).arg("--version").output()?;
        let why = String::from_utf8_lossy(&tried.stderr).into_owned();
        Ok((!tried.status.success()).then_some(why))
    }
}

/// The executable in a folder that everybody may enter: that of the build may be below root's home.
struct Shared {
    path: PathBuf,
    /// Held, since it is removed with this.
    _folder: TempDir,
}

impl Shared {
    fn share() -> Result<Self> {
        let (folder, built) = (tempfile::tempdir()?, executable()?);
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        let path = folder.path().join("opencode-cloud");
        // A link is quicker than a copy, where one file system holds both.
        if std::fs::hard_link(&built, &path).is_err() {
            std::fs::copy(&built, &path)?;
        }
        Ok(Self { path, _folder: folder })
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Says that a tier was not tried, and why. It is an error where `OC_PROMISED_TIERS` promises it.
pub(crate) fn skip(tiers: &[&str], why: &str) -> Result<()> {
    let promised = std::env::var_os("OC_PROMISED_TIERS").unwrap_or_default();
    let promised = promised.to_string_lossy().into_owned();
    let is_promised = promised.split_whitespace().any(|tier| tiers.contains(&tier));
    ensure!(!is_promised, "not tried, and OC_PROMISED_TIERS promises {tiers:?}: {why}");
    eprintln!("SKIPPED, {tiers:?}: {why}");
    Ok(())
}

/// The words of `doctor` about each tier, from A to C.
fn tiers(said: &str) -> Vec<&str> {
    let lines = said.lines().filter_map(|line| line.strip_prefix("tier "));
    lines.filter_map(|line| line.get(1..)).map(str::trim).collect()
}

#[test]
fn doctor_lists_tiers_and_features_with_reasons() -> Result<()> {
    let shared = Shared::share()?;
    for who in Who::ALL {
        if let Some(why) = who.missing(&shared.path)? {
            skip(who.promised(), &why)?;
            continue;
        }
        let ended = who.command(&shared.path).args(["doctor", "--disk-reserve=1"]).output()?;
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        ensure!(ended.status.success(), "{who:?}: {said}");
        let tiers = tiers(&said);
        let [a, b, c] = tiers[..] else { anyhow::bail!("{who:?}: {said}") };
        match who {
            Who::Root => ensure!(a.starts_with("yes") || a.starts_with("no: "), "{said}"),
            Who::RootOfContainer => ensure!(a.starts_with("no: "), "{said}"),
            Who::User | Who::UserWithoutNamespaces => {
                ensure!(a == "no: the service was not started by root", "{said}");
            }
        }
        if who == Who::UserWithoutNamespaces {
            ensure!(b.starts_with("no: ") && b.contains("user namespace"), "{said}");
            ensure!(c.starts_with("yes") || c.starts_with("no: "), "{said}");
            ensure!(said.contains("kernel.unprivileged_userns_clone=1"), "a remedy: {said}");
        }
        for feature in ["sandbox: ", "landlock  ", "disk      yes: "] {
            ensure!(said.lines().any(|line| line.starts_with(feature)), "{feature}: {said}");
        }
    }
    let full = Command::new(executable()?).args(["doctor", "--disk-reserve=1000T"]).output()?;
    let said = String::from_utf8_lossy(&full.stdout).into_owned();
    let is_walled = said.contains("landlock  yes") && said.contains("sandbox: tier ");
    let then = if is_walled { "they read and delete files only" } else { "they are refused" };
    ensure!(said.contains("disk      no: ") && said.contains(then), "{said}");
    Ok(())
}

/// Has a model make one call of `shell`, and returns how it was settled.
async fn call(world: &World, up: &Up, place: &Path, name: &str, line: &str) -> Result<Value> {
    let arguments = json!({ "command": line, "timeout_ms": 120_000 });
    let tool_calls = vec![ScriptedCall { name: "shell".into(), arguments, id: None }];
    let script = |round| Script { matches: name.into(), round: Some(round), ..Script::default() };
    world.model().script(Script { tool_calls, ..script(0) })?;
    world.model().script(Script { text: Some("done".into()), ..script(1) })?;
    let session = up.api().session(place).await?;
    ensure!(up.api().prompt(&session, name, 150).await? == "completed", "{name}");
    let log = up.api().log(&session).await?;
    let settled = events_of(&log, "tool.settled").first().map(|event| (*event).clone());
    settled.context("a settled call")
}

/// Kills the launcher of a service. It is the child of its guard.
fn kill_launcher(service: u32) -> Result<()> {
    let is_launcher_below = |status: &str, parent: u32| {
        let has = |line: &str| status.lines().any(|one| one == line);
        has("Name:\toc-launcher") && has(&format!("PPid:\t{parent}"))
    };
    let statuses = || -> Result<Vec<(u32, String)>> {
        let pids = std::fs::read_dir("/proc")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let status =
            |pid| Some((pid, std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?));
        Ok(pids.filter_map(status).collect())
    };
    let mut pid = service;
    for name in ["the guard", "the launcher"] {
        let found = statuses()?.into_iter().find(|(_, status)| is_launcher_below(status, pid));
        pid = found.with_context(|| format!("{name}, below {pid}"))?.0;
    }
    let launcher = rustix::process::Pid::from_raw(i32::try_from(pid)?).context("a process")?;
    Ok(rustix::process::kill_process(launcher, rustix::process::Signal::KILL)?)
}

/// An `up` in a new folder, as the first one of somebody.
async fn first_start(who: Who, tier: &str) -> Result<()> {
    let shared = Shared::share()?;
    if let Some(why) = who.missing(&shared.path)? {
        return skip(who.promised(), &why);
    }
    let world = World::new().await?;
    let place = world.workspace("new")?;
    let by_root = matches!(who, Who::Root | Who::RootOfContainer);
    if !by_root && is_root() {
        for path in [world.folder(), &world.folder().join("work"), &place, &world.logs()] {
            chown(path, Some(SOMEBODY), Some(SOMEBODY))?;
        }
    }
    let words =
        [world.flags(), vec!["--port=0".to_owned(), "--disk-reserve=1".to_owned()]].concat();
    let args: Vec<_> = ["up".to_owned()].into_iter().chain(words).collect();
    let by = [who.words(), vec![shared.path.display().to_string()]].concat();
    let up = Up::launch_by(&world, &by, &args, &[], Some(KEY)).await?;
    let said = up.process().stderr();
    let lines: Vec<_> = said.lines().filter(|line| line.contains("sandbox: ")).collect();
    let [line] = lines[..] else { anyhow::bail!("one line: {said}") };
    let begins = format!("sandbox: tier {tier}, ");
    if !line.contains(&begins) {
        skip(&[tier], &format!("{who:?}: this machine gives it no tier {tier}: {line}"))?;
        ensure!(line.contains(&format!("; not {tier}: ")), "the reason: {line}");
        return up.stop(&world).await;
    }
    if by_root {
        let status = std::fs::read_to_string(format!("/proc/{}/status", up.process().pid()))?;
        // CAP_SYS_MODULE, CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_SYS_CHROOT: the launcher has what cells need.
        let given_up = [16, 21, 12, 18].iter().fold(0_u64, |bits, number| bits | 1 << number);
        for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
            let bits = status.lines().find_map(|line| line.strip_prefix(set)).context("a set")?;
            ensure!(u64::from_str_radix(bits.trim(), 16)? & given_up == 0, "{status}");
        }
    } else {
        let told = "; not A: the service was not started by root (root, ";
        ensure!(line.contains(told), "reason and remedy: {line}");
    }
    let look = format!(
        "id -u; cat /etc/shadow {}/secrets.key; (exec 3<>/dev/tcp/1.1.1.1/443) && echo OPEN; \
         curl -sS -m 9 https://example.com; echo x >made; echo looked",
        world.data().display()
    );
    let settled = call(&world, &up, &place, "look around", &look).await?;
    let text = settled["output"].as_str().unwrap_or_default();
    let user = if tier == "C" { SOMEBODY } else { 1000 };
    ensure!(text.starts_with(&format!("{user}\n")) && text.contains("looked\n"), "{text}");
    ensure!(!text.contains("root:") && !text.contains("OPEN"), "{text}");
    ensure!(place.join("made").is_file(), "{text}");
    if by_root {
        // One that is killed, and its cells with it, is no end of commands: only its guard could start another.
        kill_launcher(up.process().pid())?;
    }
    let failing = call(&world, &up, &place, "download", "curl -sS https://example.com").await?;
    let text = failing["output"].as_str().unwrap_or_default();
    ensure!(text.contains("(commands run in a sandbox without a network: "), "{text}");
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await
}

#[tokio::test]
async fn a_first_start_by_root_is_in_tier_a() -> Result<()> {
    first_start(Who::Root, "A").await
}

// `up` gave up what its launcher needs to map root, and fell to tier C.
#[tokio::test]
async fn a_first_start_by_root_of_a_container_is_in_tier_b() -> Result<()> {
    first_start(Who::RootOfContainer, "B").await
}

#[tokio::test]
async fn a_first_start_by_an_ordinary_user_is_in_tier_b() -> Result<()> {
    first_start(Who::User, "B").await
}

#[tokio::test]
async fn a_first_start_without_user_namespaces_is_in_tier_c() -> Result<()> {
    first_start(Who::UserWithoutNamespaces, "C").await
}

#[tokio::test]
async fn a_second_organisation_wants_tier_a_for_tools_alone() -> Result<()> {
    let world = World::new().await?;
    // A flag that accepts less changes nothing.
    let up = world.up_with(&["--sandbox-at-most=B", "--sandbox-require=C"]).await?;
    let place = world.workspace("first")?;
    let settled = call(&world, &up, &place, "alone", "echo ran").await?;
    ensure!(settled["output"].as_str().is_some_and(|text| text.starts_with("ran\n")), "{settled}");
    let other = another_organisation(up.api(), &world.data()).await?;
    // It was believed for a moment that there is one.
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    let settled = call(&world, &up, &place, "together", "echo ran").await?;
    let text = settled["output"].as_str().unwrap_or_default();
    ensure!(settled["outcome"] == "failed", "{settled}");
    ensure!(text.contains("this service has several organisations"), "{text}");
    ensure!(text.contains("give it tier A, or run a service for each organisation"), "{text}");
    for api in [up.api(), &other] {
        let session = api.session(&place).await?;
        ensure!(api.prompt(&session, "say 2 words", 60).await? == "completed", "without tools");
    }
    oracle_of(&[up.api(), &other], world.model()).await?;
    up.stop(&world).await
}

#[tokio::test]
async fn a_workspace_that_is_full_is_a_result_of_its_command() -> Result<()> {
    let world = World::new().await?;
    let up = world.up_with(&["--workspace-size=8MiB", "--disk-reserve=1"]).await?;
    let place = world.workspace("full")?;
    let fill = "while :; do n=$((n+1)); head -c 512K /dev/zero >full$n; sleep 0.1; done";
    let settled = call(&world, &up, &place, "fill it", fill).await?;
    let text = settled["output"].as_str().unwrap_or_default();
    ensure!(settled["outcome"] == "failed", "{settled}");
    ensure!(text.contains("(killed at a limit)\n(workspace full: it holds "), "{text}");
    ensure!(text.contains(", and its limit is 8 MiB; delete what is not needed"), "{text}");
    let settled = call(&world, &up, &place, "empty it", "rm full*; echo removed").await?;
    ensure!(settled["output"] == "removed\n(exit code 0)", "{settled}");
    // One file is bounded by what is left, of what was not deleted.
    let line = "head -c 7M /dev/zero >fits; rm fits; head -c 16M /dev/zero >one";
    let settled = call(&world, &up, &place, "one file", line).await?;
    let text = settled["output"].as_str().unwrap_or_default();
    ensure!(text.contains("workspace full: a file reached 8 MiB"), "{text}");
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await
}
