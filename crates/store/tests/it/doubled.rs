//! The work of a function that reads a log grows with the log, and not with its square: each is run over one log and over
//! another that is several times as long.

use std::time::{Duration, Instant};

use domain::SessionRef;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::world::World;

/// Prompts of the shorter log.
const PROMPTS: i64 = 600;
/// The longer log is this many times as long.
const FACTOR: i64 = 4;
/// Runs over each log. The quickest counts: others were disturbed.
const RUNS: usize = 3;

/// The longer log is less than this many times the work. Work that grew with the square would be 16 times as much.
const MOST: f64 = 6.5;

/// A connection of the serving role, which sees the world's organisation.
pub(crate) struct Server {
    connection: PgConnection,
    backend: i32,
}

impl Server {
    pub(crate) async fn new(world: &World) -> Self {
        let url = world.database.url("oc_app");
        let mut connection = PgConnection::connect(&url).await.expect("a connection");
        let tenant = format!("SET oc.org = '{}'", world.org);
        sqlx::raw_sql(AssertSqlSafe(tenant)).execute(&mut connection).await.expect("a tenant");
        let backend = sqlx::query_scalar("SELECT pg_backend_pid()");
        let backend = backend.fetch_one(&mut connection).await.expect("its number");
        Self { connection, backend }
    }

    /// Ends in the middle of a page of a deletion, as a process that is killed.
    pub(crate) async fn leave_in_a_page(mut self, org: domain::OrgId) {
        let page = format!("BEGIN; SELECT clear_gone_session('{org}', 5000)");
        sqlx::raw_sql(AssertSqlSafe(page)).execute(&mut self.connection).await.expect("a page");
        self.connection.close_hard().await.expect("closed");
    }

    /// The time for which the backend was at work, where the machine tells: a busy machine changes little of it.
    fn worked(&self, since: Instant) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/schedstat", self.backend));
        let nanos = stat.ok().and_then(|stat| stat.split(' ').next()?.parse().ok());
        nanos.map_or_else(|| since.elapsed(), Duration::from_nanos)
    }

    /// The least work that a statement was in several runs, each of which is taken back.
    async fn work(&mut self, sql: &str) -> Duration {
        let since = Instant::now();
        let mut least = Duration::MAX;
        for _ in 0..RUNS {
            let begun = self.worked(since);
            let all = format!("BEGIN; SET LOCAL statement_timeout = '120s'; {sql}; ROLLBACK");
            sqlx::raw_sql(AssertSqlSafe(all)).execute(&mut self.connection).await.expect("a run");
            least = least.min(self.worked(since) - begun);
        }
        least
    }

    /// Fails when the second statement is more than [`MOST`] times the work of the first.
    async fn grows_with(&mut self, what: &str, [short, long]: [String; 2]) {
        let (short, long) = (self.work(&short).await, self.work(&long).await);
        assert!(
            long < short.mul_f64(MOST),
            "{what}: {short:?}, and {long:?} for {FACTOR} times as much"
        );
    }
}

/// Arrays `ids`, `kinds`, `versions`, `times` and `payloads` of a log: all prompts admitted, then all promoted, then a turn with
/// a call for each.
fn arrays(prompts: i64, first: &str, mark: &str) -> String {
    let events = [
        (
            1,
            "prompt.admitted",
            r#"{"message":"msg_M","parts":[],"delivery":"steer","wake":true,"digest":"d","by":{"key":"key_1","actor":"usr_A"}}"#,
        ),
        (
            2,
            "prompt.promoted",
            r#"{"message":"msg_M","parts":[{"id":"prt_M","type":"text","text":"hello"}],"agent":"build","model":{"provider":"p","model":"m"},"admitted":1}"#,
        ),
        (
            3,
            "turn.started",
            r#"{"turn":"trn_M","message":"msg_Mr","parent":"msg_M","agent":"build","model":{"provider":"p","model":"m"},"epoch":1,"step":1}"#,
        ),
        (
            3,
            "tool.called",
            r#"{"turn":"trn_M","message":"msg_Mr","class":"pure","state":"started","intent":{"call":"cal_M","part":"prt_Mc","provider_call":"c","tool":"read","arguments":"{}"}}"#,
        ),
        (
            3,
            "turn.replied",
            r#"{"turn":"trn_M","message":"msg_Mr","parts":[{"type":"tool-call","call":"cal_M"}],"finish":"stop"}"#,
        ),
        (
            3,
            "tool.settled",
            r#"{"turn":"trn_M","call":"cal_M","outcome":"completed","title":"t","output":"o","started":1,"ended":2}"#,
        ),
        (
            3,
            "turn.settled",
            r#"{"turn":"trn_M","message":"msg_Mr","outcome":"completed","usage":{"input":5,"output":3,"cost":2}}"#,
        ),
    ];
    let rows: Vec<String> = (1..)
        .zip(events)
        .map(|(nth, (part, kind, payload))| {
            let payload = payload.replace('M', &format!("{mark}'||g||'")).replace("usr_A", "usr_'||g%7||'");
            format!(
                "SELECT {part}, g, {nth}, '{kind}', '{payload}' FROM generate_series(1, {prompts}) AS g"
            )
        })
        .collect();
    format!(
        "SELECT array_agg('evt_{mark}_' || e.n ORDER BY e.n) AS ids, array_agg(e.kind ORDER BY e.n) AS kinds,
             array_agg(1 ORDER BY e.n) AS versions, array_agg(1795293590000 + e.n ORDER BY e.n) AS times,
             array_agg(e.payload ORDER BY e.n) AS payloads, count(*)::integer AS n
         FROM (SELECT row_number() OVER (ORDER BY a.part, a.g, a.nth) AS n, a.kind, a.payload
             FROM ({first} {}) AS a (part, g, nth, kind, payload)) AS e",
        rows.join(" UNION ALL ")
    )
}

/// A session whose log has that many prompts, all of them promoted together.
pub(crate) async fn long(world: &World, server: &mut Server, prompts: i64) -> SessionRef {
    let session = world.session().await;
    let log = arrays(prompts, "", session.session.as_str());
    let (org, id) = (session.org, session.session.as_str());
    let append = format!(
        "WITH log AS ({log}), head AS (
             UPDATE session_head h SET next_seq = 2 + log.n FROM log WHERE h.org_id = '{org}' AND h.id = '{id}'
             RETURNING h.incarnation)
         SELECT append_events('{org}', array_fill('{id}'::text, ARRAY[n]), array_fill(incarnation, ARRAY[n]),
             ARRAY(SELECT 1 + generate_series(1, n)), times, array_fill(NULL::bigint, ARRAY[n]), ids, kinds, versions,
             payloads, array_fill(NULL::bigint, ARRAY[n])) FROM log, head"
    );
    sqlx::raw_sql(AssertSqlSafe(append)).execute(&mut server.connection).await.expect("a log");
    session
}

/// Two logs, the second [`FACTOR`] times as long.
async fn pair(world: &World, server: &mut Server) -> [SessionRef; 2] {
    let once = long(world, server, PROMPTS).await;
    [once, long(world, server, FACTOR * PROMPTS).await]
}

// Finding core-3 H3: 12,000 prompts took ten seconds, and could not be deleted.
#[tokio::test]
async fn sums_of_usage_grow_with_the_log() {
    let world = World::new().await;
    let mut server = Server::new(&world).await;
    let pair = pair(&world, &mut server).await;
    let org = world.org;
    let facts = pair.clone().map(|session| {
        format!(
            "SELECT count(*) FROM session_head h, LATERAL usage_facts('{org}', h.incarnation, 0, h.next_seq) AS f
             WHERE h.org_id = '{org}' AND h.id = '{}'",
            session.session
        )
    });
    server.grows_with("usage_facts", facts).await;
    // In one transaction, so with all that the pages before have left behind.
    let deleted = pair.clone().map(|session| {
        format!(
            "SELECT delete_session('{org}', '{}');
             DO 'BEGIN WHILE clear_gone_session(''{org}'', 1000) LOOP END LOOP; END'",
            session.session
        )
    });
    server.grows_with("delete_session and its pages", deleted).await;
    // Little is new of a log that is counted: what is old is not read again.
    for session in &pair {
        while world.store.roll_up_usage(org, vec![session.session.to_string()]).await.expect("sums")
        {
        }
    }
    let [once, twice] = [(&pair[0], PROMPTS), (&pair[1], FACTOR * PROMPTS)].map(|(session, prompts)| {
        let promoted = 1 + 2 * prompts; // the log's last promotion
        format!(
            "SELECT count(*) FROM session_head h, LATERAL usage_facts('{org}', h.incarnation, {promoted}, {promoted} + 2)
             WHERE h.org_id = '{org}' AND h.id = '{}'",
            session.session
        )
    });
    // Postgres does this by itself, some time after a table has grown.
    sqlx::query("ANALYZE").execute(&world.root).await.expect("statistics");
    let (once, twice) = (server.work(&once).await, server.work(&twice).await);
    let slack = Duration::from_millis(1);
    assert!(twice < once.mul_f64(1.5) + slack, "{once:?}, and {twice:?} of a longer log");
}

#[tokio::test]
async fn a_fork_grows_with_what_it_copies() {
    let world = World::new().await;
    let mut server = Server::new(&world).await;
    let (org, parent) = (world.org, world.session().await.session);
    let location = &world.location;
    let fork = [PROMPTS, FACTOR * PROMPTS].map(|prompts| {
        let first = format!(
            r#"SELECT 0, 0, 1, 'session.created', '{{"project":"{}","location":"{location}","directory":"/","title":"t","agent":"build"}}'
               UNION ALL SELECT 0, 0, 2, 'session.forked', '{{"parent":"{parent}","through":1,"copied":1}}' UNION ALL"#,
            world.project
        );
        let log = arrays(prompts, &first, "fork");
        format!(
            "WITH log AS ({log}) SELECT fork_session('{org}', 'ses_fork', '{parent}', 1, '{location}', 1, ids, kinds, versions,
                 times, payloads) FROM log"
        )
    });
    server.grows_with("fork_session", fork).await;
}

// Events that must be folded one after the other cut the arrays of all the others once more each.
#[tokio::test]
async fn a_page_of_checkpoints_grows_with_its_events() {
    let world = World::new().await;
    let mut server = Server::new(&world).await;
    let org = world.org;
    let folded = [1, FACTOR].map(|times| {
        let events = 4 * times * PROMPTS;
        let payload = format!(r#"{{"turn":"trn_1","part":"prt_1","text":"{}"}}"#, "x".repeat(200));
        let all = format!("FROM generate_series(1, {events}) AS g");
        format!(
            "SELECT project_events('{org}', array_fill('ses_1'::text, ARRAY[{events}]), array_fill(1::bigint, ARRAY[{events}]),
                 ARRAY(SELECT g::bigint {all}), ARRAY(SELECT g::bigint {all}),
                 ARRAY(SELECT CASE g % 2 WHEN 0 THEN 'text.checkpointed' ELSE 'retry.scheduled' END {all}),
                 ARRAY(SELECT '{payload}' {all}))"
        )
    });
    server.grows_with("project_events", folded).await;
}

#[tokio::test]
async fn the_oracle_grows_with_the_log() {
    let world = World::new().await;
    let mut server = Server::new(&world).await;
    let pair = pair(&world, &mut server).await;
    let org = world.org;
    let judged = pair.map(|session| {
        let sql = include_str!("../../src/oracle.sql");
        let sql = sql.replace("$1", &format!("'{org}'::uuid")).replace("$2", "false");
        let sql = sql.replace("$3", &format!("'{{{}}}'::text[]", session.session));
        format!("SET LOCAL enable_nestloop = off; SET LOCAL enable_mergejoin = off; {sql}")
    });
    server.grows_with("the oracle", judged).await;
}

#[tokio::test]
async fn a_revert_grows_with_what_it_takes_back() {
    let world = World::new().await;
    let mut server = Server::new(&world).await;
    let pair = pair(&world, &mut server).await;
    let org = world.org;
    let commits = pair.map(|session| {
        let id = session.session;
        // All that waits is held by it.
        format!(
            r#"UPDATE session_head SET staged_seq = 1, pending = next_seq::integer WHERE org_id = '{org}' AND id = '{id}';
               UPDATE session_input i SET status = 'admitted', kind = 'synthetic', wake_seq = 0 FROM session_head h
               WHERE i.incarnation = h.incarnation AND h.org_id = '{org}' AND h.id = '{id}';
               UPDATE session SET revert = '{{"message":"msg_1","from":2,"back":{{}}}}' WHERE org_id = '{org}' AND id = '{id}';
               SELECT commit_staged('{org}', '{id}', ARRAY(SELECT 'evt_' || g FROM generate_series(1, 1 + {}) AS g), 1, 1, false)"#,
            2 * PROMPTS
        )
    });
    server.grows_with("commit_staged", commits).await;
}
