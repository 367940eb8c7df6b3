//! The cost of a turn in Postgres: bytes of each table with its indexes, and of the write-ahead log.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::ensure;
use sqlx::Row;
use tokio::task::JoinSet;

use crate::output::{Figure, Mark, Reporter, note};
use crate::run::postgres::Postgres;
use crate::run::sessions::Target;
use crate::run::up::Up;

const PROMPT: &str = "say 20";
/// The most that a turn without tools may take, in KB of 1,000 bytes.
const STORED: f64 = 7.0;
const LOGGED: f64 = 9.0;
/// A table that takes less than this a turn, in KB, is not printed.
const SHOWN: f64 = 0.01;

/// Arguments of `bytes`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sessions, each with a client that waits for its answers
    #[arg(long, default_value_t = 96, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    sessions: u16,
    /// Turns of each session
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    turns: u16,
}

pub(crate) async fn run(bin: &Path, args: &Args, out: &mut Reporter) -> anyhow::Result<()> {
    let up = Up::start(bin).await?;
    out.probed(up.probe().await?);
    let target = up.target();
    let mut clients = Vec::with_capacity(usize::from(args.sessions));
    for _ in 0..args.sessions {
        let mut http = target.http().await?;
        let session = target.session(&mut http).await?;
        clients.push((http, session));
    }
    up.postgres.execute("CHECKPOINT").await?;
    let (tables, before) = (tables(&up.postgres).await?, Wal::read(&up.postgres).await?);
    note(&format!("{} turns in {} sessions", args.turns, args.sessions));
    let mut tasks = JoinSet::new();
    for (mut http, session) in clients {
        let (target, turns): (Target, _) = (target.clone(), args.turns);
        tasks.spawn(async move {
            for _ in 0..turns {
                target.prompt(&mut http, &session, PROMPT).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let turns = f64::from(args.sessions) * f64::from(args.turns);
    let counted = up.postgres.number("SELECT count(*) FROM provider_turn").await?;
    ensure!(counted as f64 == turns, "{counted} turns are stored instead of {turns}");
    let per_turn = |bytes: i64| bytes as f64 / 1e3 / turns;
    let mut all = 0.0;
    for (table, size) in self::tables(&up.postgres).await? {
        let earlier = tables.get(&table).copied().unwrap_or_default();
        let (heap, index) =
            (per_turn(size.heap - earlier.heap), per_turn(size.index - earlier.index));
        all += heap + index;
        if heap + index >= SHOWN {
            let figure = Figure::new(&format!("bytes.{table}"), heap + index, "KB a turn")
                .with("heap", heap)
                .with("indexes", index);
            out.print(figure)?;
        }
    }
    out.print(
        Figure::new("bytes.stored", all, "KB a turn")
            .mark(Mark::AtMost(STORED))
            .with("turns", turns),
    )?;
    let wal = Wal::read(&up.postgres).await?;
    let logged = Figure::new("bytes.logged", per_turn(wal.bytes - before.bytes), "KB a turn")
        .mark(Mark::AtMost(LOGGED))
        .with("page_images", per_turn((wal.images - before.images) * 8_192));
    out.print(logged)?;
    up.stop().await
}

/// Bytes of a table (with its long values) and of its indexes.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    heap: i64,
    index: i64,
}

async fn tables(postgres: &Postgres) -> anyhow::Result<BTreeMap<String, Size>> {
    let sql =
        "SELECT relname::text AS name, pg_table_size(oid) AS heap, pg_indexes_size(oid) AS index
               FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
                   AND relname <> 'load_probe'";
    let rows = sqlx::query(sql).fetch_all(&postgres.pool).await?;
    rows.iter()
        .map(|row| {
            let size = Size { heap: row.try_get("heap")?, index: row.try_get("index")? };
            Ok((row.try_get("name")?, size))
        })
        .collect()
}

/// The write-ahead log so far.
#[derive(Debug, Clone, Copy)]
struct Wal {
    bytes: i64,
    /// Images of whole pages: of the first change after a checkpoint. An upper bound of their bytes, since the log
    /// leaves out the hole in a page.
    images: i64,
}

impl Wal {
    async fn read(postgres: &Postgres) -> anyhow::Result<Self> {
        let bytes = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
        let images = "SELECT wal_fpi FROM pg_stat_wal";
        Ok(Self { bytes: postgres.number(bytes).await?, images: postgres.number(images).await? })
    }
}
