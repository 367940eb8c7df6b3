//! What a journey has: a folder, a model, and a service in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Signal, kill_process};
use simulated_model::{Handle, Running, SimulatedModel};
use tempfile::TempDir;

use crate::orphans::processes_naming;
use crate::process::known;
use crate::settle::eventually;
use crate::{Cluster, Up};

/// The key of the services that a [`World`] starts.
pub const KEY: &str = "oc-journeys-bootstrap-key";

/// The variable that names the client profile.
pub(crate) const PROFILE_VARIABLE: &str = "OPENCODE_CLOUD_PROFILE";

/// How long what was left has to end by itself before it is killed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder and a simulated model, for one service at a time.
#[derive(Debug)]
pub struct World {
    model: Running,
    folder: TempDir,
}

impl World {
    /// A new folder, which the user who runs Postgres can enter, and a model of its own.
    ///
    /// # Errors
    /// When the system gives no folder or no port.
    pub async fn new() -> Result<Self> {
        let folder = testkit::temp_folder()?;
        for name in ["logs", "work"] {
            fs::create_dir(folder.path().join(name))?;
        }
        let model = SimulatedModel::start(simulated_model::Options::default()).await?;
        Ok(Self { model, folder })
    }

    /// The folder: the processes of this journey name it, and nothing else does.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where the service keeps everything.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The client profile that services of this world write.
    #[must_use]
    pub fn profile(&self) -> PathBuf {
        self.folder.path().join("profile.toml")
    }

    /// Where output goes.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.folder.path().join("logs")
    }

    /// A directory for sessions to work in, made if it is missing.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn workspace(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.path().join("work").join(name);
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(path.canonicalize()?)
    }

    /// Scripts the model and tells what it was asked.
    #[must_use]
    pub fn model(&self) -> &Handle {
        &self.model.handle
    }

    /// The model's base URL, for `--model-url`.
    #[must_use]
    pub fn model_url(&self) -> String {
        self.model.url()
    }

    /// The flags that every service of this world is started with.
    #[must_use]
    pub fn flags(&self) -> Vec<String> {
        vec![
            "--data-dir".to_owned(),
            self.data().display().to_string(),
            "--model-url".to_owned(),
            self.model_url(),
            "--bootstrap-key".to_owned(),
            KEY.to_owned(),
        ]
    }

    /// Starts `up` and waits until it is ready.
    ///
    /// # Errors
    /// When it does not get ready, with what it said.
    pub async fn up(&self) -> Result<Up> {
        self.up_with(&[]).await
    }

    /// As [`World::up`], with more flags.
    ///
    /// # Errors
    /// As [`World::up`].
    pub async fn up_with(&self, flags: &[&str]) -> Result<Up> {
        Up::start(self, flags).await
    }

    /// Starts `dev-cluster` and waits until it is ready.
    ///
    /// # Errors
    /// When it does not get ready, with what it said.
    pub async fn cluster(&self, flags: &[&str]) -> Result<Cluster> {
        Cluster::start(self, flags).await
    }
}

/// Nothing names the world's folder any more. Watchers (ours too) end a moment after what they watch.
pub(crate) async fn none_left(world: &World) -> Result<()> {
    let gone = eventually("nobody is left behind", 60, async || {
        Ok(processes_naming(world.folder()).is_empty().then_some(()))
    });
    gone.await.with_context(|| format!("{:#?}", processes_naming(world.folder())))
}

impl Drop for World {
    /// Waits for what still names the folder (a Postgres that lost its service stops by itself), then
    /// kills it: the folder goes next.
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = processes_naming(self.folder.path());
            if left.is_empty() {
                return;
            }
            if Instant::now() >= deadline {
                for pid in left.iter().filter_map(|found| known(found.pid).ok()) {
                    let _ended_already = kill_process(pid, Signal::KILL);
                }
                return;
            }
            sleep(Duration::from_millis(50));
        }
    }
}
