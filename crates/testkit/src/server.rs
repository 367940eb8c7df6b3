//! The Postgres server of a test run.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use boot::{DataDir, Durability, Postgres, PostgresOptions};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

/// The variable with the superuser URL of a Postgres to use instead of our own. Its roles get new passwords.
const GIVEN: &str = "OC_TEST_DATABASE_URL";

/// The size of a folder in memory that has room for the databases of a run, which are less than 2 GiB at once.
const ENOUGH: u64 = 8 << 30;

/// Holds the server's lifeline as its standard output until the run's process is gone, waits for the server's
/// end, and removes the folder. Another process may get the same number, but not the same start time.
const HOLDER: &str = r#"
started() { cut -d ' ' -f 22 "/proc/$1/stat" 2>/dev/null; }
while [ "$(started "$1")" = "$2" ]; do sleep 0.3; done
exec >/dev/null
tries=300
while [ -e "$3/data/postgres/pgdata/postmaster.pid" ] && [ "$tries" -gt 0 ]; do
  sleep 0.1
  tries=$((tries - 1))
done
rm -rf "$3"
"#;

/// The Postgres of this run.
#[derive(Clone, Debug)]
pub struct Server {
    superuser_url: String,
}

impl Server {
    /// Returns the superuser's URL of one of its databases.
    #[must_use]
    pub fn superuser_url(&self, database: &str) -> String {
        let (server, _) = self.superuser_url.rsplit_once('/').unwrap_or_default();
        format!("{server}/{database}")
    }

    /// Returns the password of all login roles, which is the same in every process of the run.
    pub(crate) fn role_password(&self) -> String {
        hex::encode(Sha256::digest(self.superuser_url.as_bytes()))
    }
}

/// Returns the Postgres of this run. The first test starts it.
///
/// # Errors
/// It cannot be started; the message gives the remedy.
pub async fn postgres() -> Result<Server> {
    static SERVER: OnceCell<Server> = OnceCell::const_new();
    SERVER.get_or_try_init(find_or_start).await.cloned()
}

async fn find_or_start() -> Result<Server> {
    #[expect(clippy::disallowed_methods, reason = "a test has no other start-up code")]
    if let Ok(superuser_url) = std::env::var(GIVEN) {
        return Ok(Server { superuser_url });
    }
    let run = Run::current()?;
    let folder = run.folder()?;
    // The first process of the run holds this lock while it starts the server; the others wait here.
    let _turn = turn(folder.join("turn")).await?;
    let note = folder.join("url");
    if let Ok(superuser_url) = fs::read_to_string(&note) {
        return Ok(Server { superuser_url });
    }
    let superuser_url = start(&run, &folder).await?;
    let fresh = folder.join("url.new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(superuser_url.as_bytes())?;
    fs::rename(&fresh, &note)?;
    Ok(Server { superuser_url })
}

async fn turn(path: PathBuf) -> Result<File> {
    let locked = spawn_blocking(move || {
        let options = OpenOptions::new().write(true).create(true).mode(0o600).clone();
        let file = options.open(path)?;
        file.lock()?;
        io::Result::Ok(file)
    });
    locked.await?.context("cannot wait for the run's other tests")
}

/// Starts a server that outlives this process and stops with the run.
async fn start(run: &Run, folder: &Path) -> Result<String> {
    let data = DataDir::open(&folder.join("data"))?;
    let options = PostgresOptions {
        durability: Durability::Off,
        max_connections: 400,
        ..PostgresOptions::default()
    };
    let launched = Postgres::launch(&data, &options).await?;
    let lifeline = launched.child.into_lifeline()?;
    let [number, started] = [run.pid.to_string(), run.started.clone()];
    let mut holder = Command::new("/bin/sh");
    holder.args(["-c", HOLDER, "holder", &number, &started]).arg(folder).process_group(0);
    holder.stdin(Stdio::null()).stdout(lifeline).stderr(Stdio::null()).current_dir("/");
    holder.spawn().context("cannot start the holder of the test server")?;
    Ok(launched.connection.superuser_url("postgres"))
}

/// The process that ends the run: the test runner, or else this process.
struct Run {
    pid: i32,
    /// The kernel's start time of the process. With the number it identifies one process.
    started: String,
}

impl Run {
    fn current() -> Result<Self> {
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
        let runner = parent.filter(|pid| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            matches!(name.trim(), "cargo-nextest" | "cargo")
        });
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let pid = runner.unwrap_or(own);
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let started = stat.split(' ').nth(21).context("/proc/PID/stat has 22 fields")?.to_owned();
        Ok(Self { pid, started })
    }

    /// Returns the run's folder. Its name can be guessed, so it must be ours and closed to others' files.
    fn folder(&self) -> Result<PathBuf> {
        let path = root().join(format!("oc-test-{}-{}", self.pid, self.started));
        match DirBuilder::new().mode(0o711).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
        let owner = fs::symlink_metadata(&path)?;
        let ours = owner.is_dir() && owner.uid() == rustix::process::geteuid().as_raw();
        ensure!(ours, "{} belongs to somebody else; remove it", path.display());
        Ok(path)
    }
}

/// Returns where the folders of runs are: in memory, if there is much. A database for each test is a thousand files made
/// and removed, and ext4 searches long for a place that was not free a moment ago: it took a third of the time of a run.
fn root() -> PathBuf {
    let memory = Path::new("/dev/shm");
    // The size of it and not the free part, since every process of the run must find the same.
    let bytes = rustix::fs::statvfs(memory).map_or(0, |found| found.f_blocks * found.f_frsize);
    if bytes >= ENOUGH { memory.to_path_buf() } else { std::env::temp_dir() }
}
