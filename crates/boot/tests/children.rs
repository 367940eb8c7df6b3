//! Tests the child servers as real processes: started, killed, orphaned, refused.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use boot::{
    BootError, Connection, DATABASE, DataDir, Durability, GuardedCommand, Nats, NatsOptions,
    NatsRole, Postgres, PostgresOptions, StopSignal,
};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection as _, PgConnection};
use tempfile::TempDir;

/// The variable that tells a copy of this test program which data folder to hold.
const FOLDER: &str = "BOOT_TEST_FOLDER";
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes a temporary folder that other users may pass through, as a data folder's parent must allow.
fn temp() -> TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o711)).tempdir().unwrap()
}

fn fast() -> PostgresOptions {
    PostgresOptions { durability: Durability::Off, ..PostgresOptions::default() }
}

async fn connect(connection: &Connection) -> Result<PgConnection, sqlx::Error> {
    PgConnection::connect(&connection.superuser_url(DATABASE)).await
}

async fn execute(connection: &Connection, sql: &'static str) {
    let mut session = connect(connection).await.unwrap();
    sqlx::raw_sql(sql).execute(&mut session).await.unwrap();
}

async fn count(connection: &Connection) -> i64 {
    let mut session = connect(connection).await.unwrap();
    sqlx::query_scalar("SELECT count(*) FROM kept").fetch_one(&mut session).await.unwrap()
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).unwrap()).unwrap()
}

/// Returns whether the process runs; a zombie does not count.
fn runs(number: u32) -> bool {
    fs::read_to_string(format!("/proc/{number}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("").starts_with(['Z', 'X']))
}

async fn eventually<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn postgres_keeps_its_data_its_port_and_its_door_shut() {
    let temp = temp();
    let data = DataDir::open(&temp.path().join("data")).unwrap();
    let first = Postgres::start(&data, &fast()).await.unwrap();
    let connection = first.connection().clone();
    execute(&connection, "CREATE TABLE kept AS SELECT 1 AS one").await;
    let mut session = connect(&connection).await.unwrap();
    let secret = connection.password_for("oc_app");
    let role = format!("CREATE ROLE oc_app LOGIN PASSWORD '{secret}'");
    sqlx::raw_sql(sqlx::AssertSqlSafe(role)).execute(&mut session).await.unwrap();
    for (url, over_socket) in [(connection.url(), false), (connection.socket_url(), true)] {
        let with = |password: &str| url.replace("//", &format!("//oc_app:{password}@"));
        let mut app = PgConnection::connect(&with(&secret)).await.unwrap();
        let peer = sqlx::query_scalar::<_, bool>("SELECT inet_server_addr() IS NULL");
        assert_eq!(peer.fetch_one(&mut app).await.unwrap(), over_socket);
        assert!(PgConnection::connect(&with("guess")).await.is_err(), "a guess was let in");
        assert!(PgConnection::connect(&url).await.is_err(), "nobody was let in");
    }
    let fsync: String = sqlx::query_scalar("SHOW fsync").fetch_one(&mut session).await.unwrap();
    assert_eq!(fsync, "off");
    let old = first.pid().unwrap();
    first.stop().await; // with an open session, which a fast shutdown ends
    assert!(!runs(old));

    let durable = PostgresOptions::default();
    let second = Postgres::start(&data, &durable).await.unwrap();
    assert_eq!(second.connection(), &connection);
    assert_eq!(count(&connection).await, 1);
    let mut session = connect(&connection).await.unwrap();
    let fsync: String = sqlx::query_scalar("SHOW fsync").fetch_one(&mut session).await.unwrap();
    assert_eq!(fsync, "on");
    second.stop().await;

    let version = data.path().join("postgres/pgdata/PG_VERSION");
    fs::write(&version, "99\n").unwrap();
    let refused = Postgres::start(&data, &fast()).await.unwrap_err();
    assert!(matches!(refused, BootError::PostgresVersion { data: 99, .. }), "{refused}");
}

#[tokio::test]
async fn a_killed_postgres_is_started_again_on_its_port() {
    let temp = temp();
    let data = DataDir::open(&temp.path().join("data")).unwrap();
    let postgres = Postgres::start(&data, &fast()).await.unwrap();
    execute(postgres.connection(), "CREATE TABLE kept AS SELECT 1 AS one").await;
    let old = postgres.pid().unwrap();
    kill_process(pid(old), Signal::KILL).unwrap();
    let is_new = || postgres.pid().filter(|new| *new != old);
    let new = eventually("postgres was not started again", is_new).await;
    assert_eq!(count(postgres.connection()).await, 1);
    postgres.stop().await;
    assert!(!runs(new));
}

#[tokio::test]
async fn an_orphan_is_stopped_and_a_strangers_number_is_not_feared() {
    let temp = temp();
    let data = DataDir::open(&temp.path().join("data")).unwrap();
    let launched = Postgres::launch(&data, &fast()).await.unwrap();
    let orphan = launched.child.pid().unwrap();
    execute(&launched.connection, "CREATE TABLE kept AS SELECT 1 AS one").await;
    // An open end of its pipe somewhere, so no guard stops this server.
    let lifeline = launched.child.into_lifeline().unwrap();
    let postgres = Postgres::start(&data, &fast()).await.unwrap();
    assert!(!runs(orphan));
    assert_eq!(count(postgres.connection()).await, 1);
    postgres.stop().await;
    drop(lifeline);

    // After a crash, another process may have the number in the lock files. A loss of power leaves them empty.
    let mut stranger = Command::new("sleep").arg("60").spawn().unwrap();
    let pid_file = data.path().join("postgres/pgdata/postmaster.pid");
    let port = fs::read_to_string(data.path().join("postgres/port")).unwrap();
    let socket_lock = format!("postgres/socket/.s.PGSQL.{}.lock", port.trim());
    let socket_lock = data.path().join(socket_lock);
    let recycled = format!("{}\n", stranger.id());
    for text in [recycled.as_str(), "", "no number\n"] {
        fs::write(&pid_file, text).unwrap();
        fs::write(&socket_lock, text).unwrap();
        let postgres = Postgres::start(&data, &fast()).await.unwrap();
        assert_eq!(count(postgres.connection()).await, 1);
        postgres.stop().await;
    }
    // Only the lock of the socket is left.
    fs::write(&socket_lock, recycled).unwrap();
    Postgres::start(&data, &fast()).await.unwrap().stop().await;
    assert!(runs(stranger.id()), "a stranger was hit");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test]
async fn after_our_sigkill_nothing_stays_and_the_next_start_finds_everything() {
    let temp = temp();
    let path = temp.path().join("data");
    let (mut holder, lines) = again("hold_until_killed", &path);
    let numbers = lines.iter().map(|line| line.parse::<u32>().unwrap()).collect::<Vec<_>>();
    assert_eq!(numbers.len(), 2, "{lines:?}");
    assert!(numbers.iter().all(|number| runs(*number)));
    let in_use = DataDir::open(&path).unwrap_err();
    assert!(matches!(&in_use, BootError::DataDirInUse { .. }), "{in_use}");
    holder.kill().unwrap();
    holder.wait().unwrap();

    // At once, while the old server may still be writing its last pages.
    let data = DataDir::open(&path).unwrap();
    let postgres = Postgres::start(&data, &fast()).await.unwrap();
    assert_eq!(count(postgres.connection()).await, 1);
    let gone = || numbers.iter().all(|number| !runs(*number)).then_some(());
    eventually("a child outlived its killed parent", gone).await;
    postgres.stop().await;
}

/// Not a test: the process that the test above kills.
#[tokio::test]
#[ignore = "run by another test in a process of its own"]
async fn hold_until_killed() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let data = DataDir::open(&folder).unwrap();
    let postgres = Postgres::start(&data, &fast()).await.unwrap();
    execute(postgres.connection(), "CREATE TABLE kept AS SELECT 1 AS one").await;
    let nats = Nats::start(&data, &NatsOptions::default()).await.unwrap();
    println!("\ntold {}\ntold {}\ntold end", postgres.pid().unwrap(), nats.pid().unwrap());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn nats_answers_is_started_again_and_stops() {
    let temp = temp();
    let data = DataDir::open(&temp.path().join("data")).unwrap();
    let nats = Nats::start(&data, &NatsOptions::default()).await.unwrap();
    assert!(nats.url().ends_with(&format!("@127.0.0.1:{}", nats.port())));
    let old = nats.pid().unwrap();
    kill_process(pid(old), Signal::KILL).unwrap();
    let is_new = || nats.pid().filter(|new| *new != old);
    let new = eventually("nats was not started again", is_new).await;
    nats.stop().await;
    assert!(!runs(new));
}

/// Returns NATS's answer to one command of a role, in its own text protocol.
async fn nats_says(nats: &Nats, role: NatsRole, command: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let url = nats.url_for(role);
    let (login, address) = url.trim_start_matches("nats://").split_once('@').unwrap();
    let (user, pass) = login.split_once(':').unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let login = format!(r#"{{"user":"{user}","pass":"{pass}","verbose":false}}"#);
    let sent = format!("CONNECT {login}\r\n{command}\r\nPING\r\n");
    stream.write_all(sent.as_bytes()).await.unwrap();
    let (mut said, mut bytes) = (String::new(), [0; 4096]);
    while !said.contains("PONG") {
        let read = stream.read(&mut bytes).await.unwrap();
        assert!(read > 0, "{said}");
        said.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
    said
}

// Finding security 5: any process could publish to workers and read all tenants' live text.
#[tokio::test]
async fn each_role_says_and_hears_only_its_own_hints() {
    let temp = temp();
    let data = DataDir::open(&temp.path().join("data")).unwrap();
    let nats = Nats::start(&data, &NatsOptions::default()).await.unwrap();
    let (to_worker, to_follower) = ("PUB oc.main.w.a 0\r\n", "PUB oc.main.o.a.s.b 0\r\n");
    let (as_worker, as_follower) = ("SUB oc.main.w.a 1", "SUB oc.main.o.> 1");
    let all = [to_worker, to_follower, as_worker, as_follower];
    for (role, may) in [
        (NatsRole::Gateway, [true, true, false, true]),
        (NatsRole::Worker, [false, true, true, false]),
        (NatsRole::Placement, [true, false, false, false]),
    ] {
        for (command, may) in all.iter().zip(may) {
            let said = nats_says(&nats, role, command).await;
            assert_eq!(!said.contains("Permissions Violation"), may, "{role:?} {command}: {said}");
        }
    }
    nats.stop().await;
}

#[tokio::test]
async fn a_child_that_does_not_listen_is_killed_and_a_stopped_one_hears_us() {
    let stubborn = "trap '' TERM; : > ready; while :; do sleep 0.1; done";
    let willing = "trap 'exit 7' TERM; : > ready; while :; do sleep 0.1; done";
    let soon = Duration::from_secs(2);
    for (script, patience, code, signal) in
        [(stubborn, soon, None, Some(9)), (willing, PATIENCE, Some(7), None)]
    {
        let temp = temp();
        let mut command = GuardedCommand::new(Path::new("/bin/sh"), StopSignal::Terminate);
        command.command().args(["-c", script]).current_dir(temp.path());
        let mut child = command.spawn().unwrap();
        let ready = temp.path().join("ready");
        eventually("the child did not start", || ready.exists().then_some(())).await;
        kill_process(pid(child.pid().unwrap()), Signal::STOP).unwrap();
        let status = child.stop(patience).await.unwrap();
        assert_eq!((status.code(), status.signal()), (code, signal));
        assert_eq!(child.pid(), None);
    }
}

#[tokio::test]
async fn a_folder_that_the_postgres_user_cannot_enter_is_named() {
    if !rustix::process::geteuid().is_root() {
        return; // Postgres then runs as our own user, who owns the folder
    }
    let closed = tempfile::tempdir().unwrap();
    fs::set_permissions(closed.path(), Permissions::from_mode(0o700)).unwrap();
    let data = DataDir::open(&closed.path().join("data")).unwrap();
    let refused = Postgres::start(&data, &fast()).await.unwrap_err().to_string();
    let fix = format!("chmod o+x {}", fs::canonicalize(closed.path()).unwrap().display());
    assert!(refused.contains(&fix), "{refused}");
}

#[tokio::test]
async fn the_first_signal_asks_and_the_second_exits() {
    let temp = temp();
    let (mut child, lines) = again("stop_at_the_second_signal", temp.path());
    assert_eq!(lines, ["ready"]);
    let number = pid(child.id());
    kill_process(number, Signal::TERM).unwrap();
    let asked = temp.path().join("asked");
    eventually("the token was not cancelled", || asked.exists().then_some(())).await;
    assert!(runs(child.id()));
    kill_process(number, Signal::INT).unwrap();
    let status = eventually("it did not exit", || child.try_wait().unwrap()).await;
    assert_eq!(status.code(), Some(130));
}

/// Not a test: the process that the test above signals. It is busy, like a stuck process.
#[tokio::test]
#[ignore = "run by another test in a process of its own"]
async fn stop_at_the_second_signal() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let stop = boot::signals::watch().unwrap();
    println!("\ntold ready\ntold end");
    stop.cancelled().await;
    fs::write(folder.join("asked"), "").unwrap();
    std::thread::sleep(PATIENCE * 2);
}

/// Runs another test of this program in its own process, and returns its first lines.
fn again(test: &str, folder: &Path) -> (Child, Vec<String>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).env(FOLDER, folder);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let told = lines.filter_map(|line| line.strip_prefix("told ").map(str::to_owned));
    let told = told.take_while(|line| line != "end").collect();
    (child, told)
}
