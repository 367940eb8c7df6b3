//! `opencode-cloud up` as a process.

use std::path::PathBuf;
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
use crate::world::{KEY, PROFILE_VARIABLE, World, kept_key, none_left};

/// How long a start may take, on a busy machine.
const START_SECONDS: u64 = 90;
/// How long an orderly stop may take: five seconds of grace for turns, and the servers' ends.
const STOP: Duration = Duration::from_secs(60);

/// A service with its embedded defaults, ready.
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
            args.extend(["--port", "0"].map(str::to_owned)); // any free port; it prints which
        }
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Self::launch(world, &args, &[], Some(KEY)).await
    }

    /// Starts a service with exactly these arguments and variables, and waits until it is ready. Requests use `key`;
    /// `None` takes the key that its data folder keeps.
    ///
    /// # Errors
    /// When it does not get ready, with its output.
    pub async fn launch(
        world: &World,
        args: &[String],
        environment: &[(String, String)],
        key: Option<&str>,
    ) -> Result<Self> {
        let by = [executable()?.display().to_string()];
        Self::launch_by(world, &by, args, environment, key).await
    }

    /// Like [`Up::launch`], by a command line whose last word is the executable: a program before it makes it somebody else's.
    ///
    /// # Errors
    /// Those of [`Up::launch`].
    pub async fn launch_by(
        world: &World,
        by: &[String],
        args: &[String],
        environment: &[(String, String)],
        key: Option<&str>,
    ) -> Result<Self> {
        let before = std::fs::read_to_string(world.logs().join("up.out")).unwrap_or_default();
        let profile = (PROFILE_VARIABLE.to_owned(), world.profile().display().to_string());
        let environment: Vec<_> = [profile].into_iter().chain(environment.to_vec()).collect();
        let mut words = by.to_vec();
        words.extend(args.iter().cloned());
        let program = PathBuf::from(words.remove(0));
        let mut process = Process::start("up", &program, &words, &environment, &world.logs())?;
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
            None => kept_key(world)?,
        };
        let api = Api::new(&url, &kept)?;
        eventually("/readyz answers 200", 60, async || Ok(api.is_ready().await.then_some(())))
            .await?;
        Ok(Self { process, api })
    }

    /// Returns its HTTP interface.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Returns the command line for it.
    ///
    /// # Errors
    /// When there is no executable.
    pub fn cli(&self) -> Result<Cli> {
        Cli::new(self.api.url(), self.api.key())
    }

    /// Returns its process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Presses Ctrl-C and waits for a clean end: exit code 0, and no process left that names the world's folder.
    ///
    /// # Errors
    /// When the end is not clean.
    pub async fn stop(mut self, world: &World) -> Result<()> {
        self.process.signal(Signal::INT)?;
        let status = self.process.wait(STOP).await?;
        ensure!(status.success(), "`up` ended with {status}: {}", self.process.tail());
        none_left(world).await
    }

    /// Runs the executable with arguments that it must refuse, and returns the result.
    ///
    /// # Errors
    /// When it does not end by itself.
    pub async fn refused(args: &[String], environment: &[(String, String)]) -> Result<Ended> {
        let mut command = Command::new(executable()?);
        without_our_settings(&mut command);
        command.args(args).envs(environment.iter().cloned()).current_dir(std::env::temp_dir());
        finish(command, None).await
    }

    /// Kills it, and waits until everything that it started has ended too.
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
