//! The machine's current speed: a durable commit, and a bare flush to disk.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Instant;

use super::postgres::Postgres;
use crate::stats::Samples;

const COMMITS: usize = 1_000;
const WARM_UP: usize = 50;
const FLUSHES: usize = 200;

/// The time that one client needs for a durable insert of one row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe {
    pub(crate) commit_p50_ms: f64,
    pub(crate) commit_p99_ms: f64,
}

/// Probes commits. Nothing else should run meanwhile.
pub(crate) async fn commits(postgres: &Postgres) -> anyhow::Result<Probe> {
    postgres
        .execute("CREATE TABLE IF NOT EXISTS load_probe (id bigserial PRIMARY KEY, text text)")
        .await?;
    let mut connection = postgres.pool.acquire().await?;
    let text = "x".repeat(500);
    let mut samples = Samples::default();
    for round in 0..WARM_UP + COMMITS {
        let began = Instant::now();
        sqlx::query("INSERT INTO load_probe (text) VALUES ($1)")
            .bind(&text)
            .execute(&mut *connection)
            .await?;
        if round >= WARM_UP {
            samples.push(began.elapsed());
        }
    }
    Ok(Probe { commit_p50_ms: samples.ms(50), commit_p99_ms: samples.ms(99) })
}

/// Returns the median time to flush a page to disk, in milliseconds: one append to a Raft log waits that long.
pub(crate) fn flush_p50_ms(folder: &Path) -> anyhow::Result<f64> {
    let mut file = File::create(folder.join("flush-probe"))?;
    let page = [7_u8; 4096];
    let mut samples = Samples::default();
    for _ in 0..FLUSHES {
        let began = Instant::now();
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&page)?;
        file.sync_data()?;
        samples.push(began.elapsed());
    }
    Ok(samples.ms(50))
}
