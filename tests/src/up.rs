//! `opencode-cloud up` as a process.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::api::Api;
use crate::cli::{Cli, Ended, finish};
use crate::executable::executable;
use crate::orphans::processes_naming;
use crate::process::{Process, without_our_settings};
use crate::settle::eventually;
use crate::world::{KEY, PROFILE_VARIABLE, World, none_left};

/// How long a start may take, on a machine that does other things too.
const START_SECONDS: u64 = 90;
/// How long an orderly stop may take: five seconds of grace for turns, and the servers' ends.
const STOP: Duration = Duration::from_secs(60);

/// A service on its embedded default, ready.
#[derive(Debug)]
pub struct Up {
    process: Process,
    api: Api,
}

impl Up {
    pub(crate) async fn start(world: &World, flags: &[&str]) -> Result<Self> {
        let mut args = vec!["up".to_owned()];
        args.extend(world.flags());
        if !flags.contains(&"--port") {
            args.extend(["--port", "0"].map(str::to_owned)); // any; it prints which
        }
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Self::launch(world, &args, &[], Some(KEY)).await
    }

    /// Starts a service with exactly these arguments and these variables, and waits until it is ready. It
    /// is asked with `key`; `None` takes the key that its data folder keeps.
    ///
    /// # Errors
    /// When it does not get ready, with what it said.
    pub async fn launch(
        world: &World,
        args: &[String],
        environment: &[(String, String)],
        key: Option<&str>,
    ) -> Result<Self> {
        let before = std::fs::read_to_string(world.logs().join("up.out")).unwrap_or_default();
        let profile = (PROFILE_VARIABLE.to_owned(), world.profile().display().to_string());
        let environment: Vec<_> = [profile].into_iter().chain(environment.to_vec()).collect();
        let mut process = Process::start("up", &executable()?, args, &environment, &world.logs())?;
        let url = eventually("`up` prints where it is", START_SECONDS, async || {
            if !process.is_running().await {
                bail!("`up` ended: {}", process.stderr());
            }
            let out = process.stdout();
            let marker = "is ready at ";
            let new = out.get(before.len()..).unwrap_or_default();
            let url = new.split_once(marker).and_then(|(_, rest)| rest.split_once('\n'));
            Ok(url.map(|(url, _)| url.to_owned()))
        })
        .await?;
        let kept = match key {
            Some(key) => key.to_owned(),
            None => std::fs::read_to_string(world.data().join("client.key"))
                .context("`up` kept no key")?
                .trim()
                .to_owned(),
        };
        let api = Api::new(&url, &kept)?;
        eventually("/readyz answers 200", 60, async || Ok(api.is_ready().await.then_some(())))
            .await?;
        Ok(Self { process, api })
    }

    /// Its HTTP interface.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// The client subcommands, pointed at it.
    ///
    /// # Errors
    /// When there is no executable.
    pub fn cli(&self) -> Result<Cli> {
        Cli::new(self.api.url(), self.api.key())
    }

    /// Its process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Presses Ctrl-C and waits for the end, which must be in good order: exit code 0, and no process
    /// left that names the world's folder.
    ///
    /// # Errors
    /// When it is not.
    pub async fn stop(mut self, world: &World) -> Result<()> {
        self.process.signal(Signal::INT)?;
        let status = self.process.wait(STOP).await?;
        ensure!(status.success(), "`up` ended with {status}: {}", self.process.tail());
        none_left(world).await
    }

    /// Runs the executable with arguments that it is to refuse; answers how it ended.
    ///
    /// # Errors
    /// When it does not end by itself.
    pub async fn refused(args: &[String], environment: &[(String, String)]) -> Result<Ended> {
        let mut command = Command::new(executable()?);
        without_our_settings(&mut command);
        command.args(args).envs(environment.iter().cloned()).current_dir(std::env::temp_dir());
        finish(command, None).await
    }

    /// Kills it, and waits until everything that it had started has ended too.
    ///
    /// # Errors
    /// When something stays.
    pub async fn kill(mut self, world: &World) -> Result<()> {
        self.process.signal(Signal::KILL)?;
        self.process.wait(Duration::from_secs(60)).await.context("SIGKILL")?;
        eventually("what `up` had started ends after it", 60, async || {
            Ok(processes_naming(world.folder()).is_empty().then_some(()))
        })
        .await
    }
}
