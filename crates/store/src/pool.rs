use std::time::Duration;

use domain::OrgId;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction};

use crate::admission::Admit;
use crate::batch::Batches;
use crate::cluster::Features;
use crate::events::Read;
use crate::lane::Lane;
use crate::look::Look;
use crate::write::Write;
use crate::{StoreError, role_url};

/// How a process uses the database.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// A URL of the database; user and password are replaced by each role's.
    pub url: String,
    /// The password of `oc_app` and `oc_sched`; `None` takes the URL's.
    pub password: Option<String>,
    /// Connections for admission and reads.
    pub gateway_connections: u32,
    /// Connections for drains.
    pub drain_connections: u32,
    /// How long to wait for a connection before the call fails.
    pub acquire_timeout: Duration,
}

impl StoreOptions {
    /// The defaults for the database at `url`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            password: None,
            gateway_connections: connections(),
            drain_connections: connections(),
            acquire_timeout: Duration::from_secs(5),
        }
    }
}

/// Three a core, 4 to 24: no connection is held while something else is waited for, so that more of them
/// only take turns, each with plans and caches of its own.
fn connections() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(cores * 3).unwrap_or(u32::MAX).clamp(4, 24)
}

/// The database. Cheap to clone.
///
/// Separate pools, so that a burst of one kind of work cannot starve the others: `gateway` for admission
/// and reads, `drain` for drains, `sched` (a role that can only read ids) for sweeps.
#[derive(Debug, Clone)]
pub struct Store {
    gateway: PgPool,
    drain: PgPool,
    sched: PgPool,
    /// Gateways' calls of one statement, which are nearly all of them.
    lane: Lane,
    drain_lane: Lane,
    admissions: Batches<Admit>,
    readings: Batches<Read>,
    looks: Batches<Look>,
    writes: Batches<Write>,
    pub(crate) features: Features,
}

pub(crate) type Tx = Transaction<'static, Postgres>;

/// Ends a transaction whose holder stopped, and notices a dead host within 3 s: either would hold up
/// a takeover for as long.
///
/// Every statement of ours has one right plan, an index's, whatever its parameters. So it is planned once
/// a connection, and not by the size that a table had in that moment: a plan that scanned a table while
/// it was small would be kept until somebody analyses the table.
const SESSION_SETTINGS: [(&str, &str); 9] = [
    ("idle_in_transaction_session_timeout", "1s"),
    ("statement_timeout", "30s"),
    ("tcp_keepalives_idle", "1"),
    ("tcp_keepalives_interval", "1"),
    ("tcp_keepalives_count", "2"),
    ("application_name", "opencode-cloud"),
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("jit", "off"),
];

/// A gateway's transactions of several statements lock no head and no Location: only who makes the same project, key or
/// credential waits for one that stopped. So it may be slow for longer, as it is on a machine that is busy elsewhere.
const GATEWAY_SETTINGS: [(&str, &str); 1] = [("idle_in_transaction_session_timeout", "5s")];

impl Store {
    /// Connects lazily: the first call that needs a connection opens it.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn connect(options: &StoreOptions) -> Result<Self, StoreError> {
        let connect = |role: &str| -> Result<PgConnectOptions, StoreError> {
            let url = role_url(&options.url, role, options.password.as_deref())?;
            let connect: PgConnectOptions = url.parse()?;
            Ok(connect.options(SESSION_SETTINGS))
        };
        let pool_of = |connections: u32, connect: PgConnectOptions| {
            PgPoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(options.acquire_timeout)
                .test_before_acquire(false)
                .connect_lazy_with(connect)
        };
        let pool = |role: &str, connections: u32| -> Result<PgPool, StoreError> {
            Ok(pool_of(connections, connect(role)?))
        };
        let lane = |connections: u32| -> Result<Lane, StoreError> {
            Ok(Lane::new(connect("oc_app")?, connections, options.acquire_timeout))
        };
        let patience = options.acquire_timeout;
        let (gateways, drains) =
            (lane(options.gateway_connections)?, lane(options.drain_connections)?);
        Ok(Self {
            gateway: pool_of(
                options.gateway_connections,
                connect("oc_app")?.options(GATEWAY_SETTINGS),
            ),
            drain: pool("oc_app", options.drain_connections)?,
            sched: pool("oc_sched", 4)?,
            admissions: Batches::new(gateways.clone(), patience),
            readings: Batches::new(gateways.clone(), patience),
            looks: Batches::new(drains.clone(), patience),
            writes: Batches::new(drains.clone(), patience),
            lane: gateways,
            drain_lane: drains,
            features: Features::default(),
        })
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// [`StoreError::Database`] when it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let sched = self.sched.clone();
        tasks::detached(async move { sqlx::query("SELECT 1").execute(&sched).await.map(drop) })
            .await?;
        Ok(())
    }

    /// Closes every connection after the calls that use them have ended.
    pub async fn close(&self) {
        self.gateway.close().await;
        self.drain.close().await;
        self.sched.close().await;
        self.lane.close().await;
        self.drain_lane.close().await;
    }

    pub(crate) fn sched(&self) -> &PgPool {
        &self.sched
    }

    /// For gateways' calls of one statement.
    pub(crate) fn lane(&self) -> &Lane {
        &self.lane
    }

    /// For drains' calls of one statement.
    pub(crate) fn drain_lane(&self) -> &Lane {
        &self.drain_lane
    }

    pub(crate) fn admissions(&self) -> &Batches<Admit> {
        &self.admissions
    }

    pub(crate) fn readings(&self) -> &Batches<Read> {
        &self.readings
    }

    pub(crate) fn looks(&self) -> &Batches<Look> {
        &self.looks
    }

    pub(crate) fn writes(&self) -> &Batches<Write> {
        &self.writes
    }

    /// A transaction for gateways that sees one tenant, begun in one round trip.
    pub(crate) async fn tenant(&self, org: OrgId) -> Result<Tx, StoreError> {
        Ok(self.gateway.begin_with(begin(org)).await?)
    }

    /// A transaction for drains that sees one tenant.
    pub(crate) async fn drain_tx(&self, org: OrgId) -> Result<Tx, StoreError> {
        Ok(self.drain.begin_with(begin(org)).await?)
    }
}

/// `SET LOCAL` takes no parameter; a UUID's text has only hex digits and dashes.
fn begin(org: OrgId) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!("BEGIN; SET LOCAL oc.org = '{org}'"))
}

/// The same for a transaction that can lock no row, so that it holds up neither a takeover nor anybody else. Its holder
/// may stop for as long as a snapshot may be kept from vacuum, not only for as long as others may wait.
pub(crate) fn begin_reading(org: OrgId) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!(
        "BEGIN READ ONLY; SET LOCAL oc.org = '{org}'; SET LOCAL idle_in_transaction_session_timeout = '{READ_IDLE}'"
    ))
}

/// See [`begin_reading`].
const READ_IDLE: &str = "20s";
