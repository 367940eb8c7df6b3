use std::sync::Arc;
use std::time::Duration;

use domain::OrgId;

use crate::admission::Admit;
use crate::batch::Batches;
use crate::cluster::Features;
use crate::connections::Connections;
use crate::events::Read;
use crate::lane::Lane;
use crate::locked::Queues;
use crate::look::Look;
use crate::rests::Rests;
use crate::shown_secret::ShownSecret;
pub(crate) use crate::transaction::Tx;
use crate::went_back::Sightings;
use crate::write::Write;
use crate::{StoreError, pooler, role_url};

/// How a process uses the database.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// A URL of the database; user and password are replaced by each role's.
    pub url: String,
    /// The password of `oc_app` and `oc_sched`; `None` takes the URL's.
    pub password: Option<String>,
    /// Connections for a gateway's statements: admissions and reads.
    pub gateway_connections: u32,
    /// Connections for drains' statements.
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

/// Three a core, 4 to 7: no connection is held while something else is waited for, and calls that come together share
/// a statement. More would only take turns, each with plans and caches of its own.
fn connections() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(cores * 3).unwrap_or(u32::MAX).clamp(4, 7)
}

/// Connections for a gateway's transactions of several statements, which only administration makes.
const GATEWAY_TRANSACTIONS: u32 = 3;
/// Connections for what takes long: deletions, forks, rebuilds, sums and checks.
const LONG: u32 = 2;
/// Connections for imports, which take as long as their clients send.
const IMPORTS: u32 = 2;
/// Connections for drains' transactions: those of drains that lost a race and hold their session's head.
const DRAIN_TRANSACTIONS: u32 = 3;
/// Connections for sweeps and keys. With the others and [`connections`], a process has 28 at most.
const SWEEPS: u32 = 4;

/// Settings of gateways' connections. A call that meets a lock gives its connection back and asks again ([`crate::locked`]),
/// and Postgres ends a statement just before we would give it up: no backend is left behind.
const GATEWAY_SETTINGS: &[&str] = &["lock_timeout = '200ms'", "statement_timeout = '4900ms'"];
/// The same for what takes long. A role's own limit ends a statement after 30 s.
const LONG_SETTINGS: &[&str] = &["lock_timeout = '200ms'"];
/// Settings of drains' connections. A drain waits for its session's lock, but Postgres answers before we would take it for
/// one that is gone and open new connections in place of all.
const DRAIN_SETTINGS: &[&str] = &["lock_timeout = '4s'"];
/// How long a call waits for one of the few turns of what takes long.
pub(crate) const LONG_PATIENCE: Duration = Duration::from_secs(30);

/// The database. Cheap to clone.
///
/// Each kind of work has turns of its own, so that a burst of one cannot starve the others: statements and transactions
/// of gateways and of drains as `oc_app`, and sweeps as `oc_sched` (a role that can only read ids).
#[derive(Debug, Clone)]
pub struct Store {
    /// Gateways' calls of one statement, which are nearly all of them.
    lane: Lane,
    gateway: Lane,
    long: Lane,
    imports: Lane,
    import_rests: Rests,
    drain_lane: Lane,
    drain: Lane,
    sched: Lane,
    admissions: Batches<Admit>,
    readings: Batches<Read>,
    looks: Batches<Look>,
    secrets: Batches<ShownSecret>,
    writes: Batches<Arc<Write>>,
    queues: Queues,
    pub(crate) features: Features,
    pub(crate) sightings: Sightings,
}

impl Store {
    /// Connects lazily: the first call that needs a connection opens it.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn connect(options: &StoreOptions) -> Result<Self, StoreError> {
        let patience = options.acquire_timeout;
        let connections = |role: &str, settings| -> Result<Arc<Connections>, StoreError> {
            let url = role_url(&options.url, role, options.password.as_deref())?;
            let (connect, is_pooled) = pooler::options(&url)?;
            Ok(Arc::new(Connections::new(connect, is_pooled, settings)))
        };
        let gateway = connections("oc_app", GATEWAY_SETTINGS)?;
        let long = connections("oc_app", LONG_SETTINGS)?;
        let (drain, sched) =
            (connections("oc_app", DRAIN_SETTINGS)?, connections("oc_sched", &[])?);
        let gateways = Lane::new(gateway.clone(), options.gateway_connections, patience);
        let drains = Lane::new(drain.clone(), options.drain_connections, patience);
        let sched = Lane::new(sched, SWEEPS, patience);
        Ok(Self {
            gateway: Lane::new(gateway, GATEWAY_TRANSACTIONS, patience),
            long: Lane::new(long.clone(), LONG, patience.max(LONG_PATIENCE)),
            import_rests: Rests::default(),
            imports: Lane::new(long, IMPORTS, patience.max(LONG_PATIENCE)),
            drain: Lane::new(drain, DRAIN_TRANSACTIONS, patience),
            secrets: Batches::new(sched.clone(), patience),
            sched,
            queues: Queues::default(),
            admissions: Batches::new(gateways.clone(), patience),
            readings: Batches::new(gateways.clone(), patience),
            looks: Batches::new(drains.clone(), patience),
            writes: Batches::new(drains.clone(), patience),
            lane: gateways,
            drain_lane: drains,
            features: Features::default(),
            sightings: Sightings::default(),
        })
    }

    /// Whether the database answers each kind of short work on the connections that serve it.
    ///
    /// # Errors
    /// [`StoreError::Database`] when it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        for lane in [&self.lane, &self.gateway, &self.drain_lane, &self.drain, &self.sched] {
            lane.ping().await?;
        }
        Ok(())
    }

    /// Closes every connection after the calls that use them have ended.
    pub async fn close(&self) {
        for lane in self.lanes() {
            lane.close().await;
        }
    }

    fn lanes(&self) -> [&Lane; 7] {
        let Self { lane, gateway, long, imports, drain_lane, drain, sched, .. } = self;
        [lane, gateway, long, imports, drain_lane, drain, sched]
    }

    /// For sweeps, and whatever asks across tenants.
    pub(crate) fn sched(&self) -> &Lane {
        &self.sched
    }

    /// For gateways' calls of one statement. Those that lock a session go by [`Store::at_head`].
    pub(crate) fn lane(&self, org: OrgId) -> Lane {
        self.lane.for_organisation(org)
    }

    /// For calls of one statement that may take long.
    pub(crate) fn long_lane(&self, org: OrgId) -> Lane {
        self.long.for_organisation(org)
    }

    pub(crate) fn queues(&self) -> Queues {
        self.queues.clone()
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

    pub(crate) fn secrets(&self) -> &Batches<ShownSecret> {
        &self.secrets
    }

    pub(crate) fn looks(&self) -> &Batches<Look> {
        &self.looks
    }

    pub(crate) fn writes(&self) -> &Batches<Arc<Write>> {
        &self.writes
    }

    /// A transaction for gateways that sees one tenant, begun in one round trip.
    pub(crate) async fn tenant(&self, org: OrgId) -> Result<Tx, StoreError> {
        Tx::begin(&self.gateway.for_organisation(org), &begin(org, GATEWAY_IDLE, TRANSACTION_LOCKS))
            .await
    }

    /// A transaction whose statements may take long. It is one of few.
    pub(crate) async fn long_tx(&self, org: OrgId) -> Result<Tx, StoreError> {
        Tx::begin(&self.long.for_organisation(org), &begin(org, GATEWAY_IDLE, TRANSACTION_LOCKS))
            .await
    }

    /// A transaction for an import.
    pub(crate) async fn import_tx(&self, org: OrgId) -> Result<Tx, StoreError> {
        Tx::begin(&self.imports.for_organisation(org), &begin(org, GATEWAY_IDLE, TRANSACTION_LOCKS))
            .await
    }

    /// When an organisation may import its next session.
    pub(crate) fn import_rests(&self) -> &Rests {
        &self.import_rests
    }

    /// A transaction for drains that sees one tenant.
    pub(crate) async fn drain_tx(&self, org: OrgId) -> Result<Tx, StoreError> {
        Tx::begin(&self.drain, &begin(org, DRAIN_IDLE, "")).await
    }

    /// A transaction that only reads, and locks no row: it holds up neither a takeover nor anybody else.
    pub(crate) async fn reading_tx(&self, org: OrgId) -> Result<Tx, StoreError> {
        Tx::begin(&self.lane.for_organisation(org), &begin_reading(org)).await
    }
}

/// Ends a transaction whose holder stopped, since it would hold up a takeover for as long.
const DRAIN_IDLE: &str = "1s";

/// A gateway's transactions of several statements lock no head and no Location: only who makes the same project, key or
/// credential waits for one that stopped. So it may be slow for longer, as it is on a machine that is busy elsewhere.
const GATEWAY_IDLE: &str = "5s";

/// A transaction of a gateway waits for others that make the same project, key or credential: it is not asked again.
const TRANSACTION_LOCKS: &str = "; SET LOCAL lock_timeout = '4s'";

/// Who stops while reading holds up nobody: it may be as long as a snapshot may be kept from vacuum.
const READ_IDLE: &str = "20s";

/// `SET LOCAL` takes no parameter; a UUID's text has only hex digits and dashes.
fn begin(org: OrgId, idle: &str, locks: &str) -> String {
    format!(
        "BEGIN; SET LOCAL oc.org = '{org}'; SET LOCAL idle_in_transaction_session_timeout = '{idle}'{locks}"
    )
}

/// See [`Store::reading_tx`].
fn begin_reading(org: OrgId) -> String {
    format!(
        "BEGIN READ ONLY; SET LOCAL oc.org = '{org}'; SET LOCAL idle_in_transaction_session_timeout = '{READ_IDLE}'"
    )
}
