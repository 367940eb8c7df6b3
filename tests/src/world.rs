//! The surroundings of a journey: a folder, a model, and a service.

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

/// The variable for the client profile's path.
pub(crate) const PROFILE_VARIABLE: &str = "OPENCODE_CLOUD_PROFILE";

/// How long leftover processes may take to end by themselves before they are killed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder and a simulated model, for one service at a time.
#[derive(Debug)]
pub struct World {
    model: Running,
    folder: TempDir,
}

impl World {
    /// Creates a folder that the user who runs Postgres can enter, and a model.
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

    /// Returns the folder. The processes of this journey name it, and no others do.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the data folder of the service.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Returns the client profile that services of this world write.
    #[must_use]
    pub fn profile(&self) -> PathBuf {
        self.folder.path().join("profile.toml")
    }

    /// Returns the folder for output.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.folder.path().join("logs")
    }

    /// Returns a directory for sessions to work in, and creates it if it is missing.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn workspace(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.path().join("work").join(name);
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(path.canonicalize()?)
    }

    /// Returns the model's handle, which scripts it and shows its requests.
    #[must_use]
    pub fn model(&self) -> &Handle {
        &self.model.handle
    }

    /// Returns the model's base URL, for `--model-url`.
    #[must_use]
    pub fn model_url(&self) -> String {
        self.model.url()
    }

    /// Returns the flags of every service of this world.
    #[must_use]
    pub fn flags(&self) -> Vec<String> {
        let given = ["--bootstrap-key".to_owned(), KEY.to_owned()];
        self.flags_without_key().into_iter().chain(given).collect()
    }

    fn flags_without_key(&self) -> Vec<String> {
        let (data, model) = (self.data().display().to_string(), self.model_url());
        vec!["--data-dir".to_owned(), data, "--model-url".to_owned(), model]
    }

    /// Starts `up` and waits until it is ready.
    ///
    /// # Errors
    /// When it does not get ready, with its output.
    pub async fn up(&self) -> Result<Up> {
        self.up_with(&[]).await
    }

    /// Like [`World::up`], with more flags.
    ///
    /// # Errors
    /// Those of [`World::up`].
    pub async fn up_with(&self, flags: &[&str]) -> Result<Up> {
        Up::start(self, flags).await
    }

    /// Starts `up` with more flags and the owner's key that its data folder keeps, and waits until it is ready.
    ///
    /// # Errors
    /// Those of [`World::up`].
    pub async fn up_of_owner(&self, flags: &[&str]) -> Result<Up> {
        let mut args = ["up", "--port", "0"].map(str::to_owned).to_vec();
        args.extend(self.flags_without_key());
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Up::launch(self, &args, &[], None).await
    }

    /// Starts `dev-cluster` and waits until it is ready.
    ///
    /// # Errors
    /// When it does not get ready, with its output.
    pub async fn cluster(&self, flags: &[&str]) -> Result<Cluster> {
        Cluster::start(self, flags).await
    }

    /// Starts `dev-cluster` at a port with more flags, and with the owner's key that its data folder keeps.
    ///
    /// # Errors
    /// When it does not get ready, with its output.
    pub async fn cluster_of_owner(&self, port: u16, flags: &[&str]) -> Result<Cluster> {
        let mut all = self.flags_without_key();
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Cluster::launch(self, port, &all, None).await
    }
}

/// Returns the key that the data folder of the world's service keeps.
pub(crate) fn kept_key(world: &World) -> Result<String> {
    let file = world.data().join("client.key");
    let key = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    Ok(key.trim().to_owned())
}

/// Waits until nothing names the world's folder. Watchers end a moment after the process that they watch.
pub(crate) async fn none_left(world: &World) -> Result<()> {
    let gone = eventually("nobody is left behind", 60, async || {
        Ok(processes_naming(world.folder()).is_empty().then_some(()))
    });
    gone.await.with_context(|| format!("{:#?}", processes_naming(world.folder())))
}

impl Drop for World {
    /// Waits for processes that still name the folder (a Postgres that lost its service stops by itself), then kills
    /// them, because the folder goes next.
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
