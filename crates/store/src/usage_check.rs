//! I22: the sums of usage are those of a recount from the logs.

use std::collections::BTreeMap;

use domain::OrgId;

use crate::connections::{Limit, bounded};
use crate::oracle::Violation;
use crate::pool::Tx;
use crate::usage_read::UsageTable;
use crate::{Store, StoreError};

/// Sessions that one statement counts.
const SESSIONS: i64 = 200;

/// Sums by day and by some keys.
#[derive(Default)]
struct Sums(BTreeMap<String, Vec<i64>>);

impl Sums {
    fn add(&mut self, key: String, sums: &[i64], sign: i64) {
        let own = self.0.entry(key).or_insert_with(|| vec![0; sums.len()]);
        for (own, sum) in own.iter_mut().zip(sums) {
            *own = own.wrapping_add(sum.wrapping_mul(sign));
        }
    }

    fn add_all(&mut self, others: Vec<(String, Vec<i64>)>, sign: i64) {
        others.into_iter().for_each(|(key, sums)| self.add(key, &sums, sign));
    }

    /// The keys whose sums are not 0, each as a violation.
    fn differences(self, table: &str, names: &[&str]) -> Vec<Violation> {
        let differs = self.0.into_iter().filter(|(_, sums)| sums.iter().any(|sum| *sum != 0));
        differs
            .map(|(key, sums)| {
                let off = names.iter().zip(sums).filter(|(_, sum)| *sum != 0);
                let off: Vec<_> = off.map(|(name, sum)| format!("{name} by {sum:+}")).collect();
                let found = format!("{table} differs for day {key}: {}", off.join(", "));
                Violation { invariant: "I22".into(), session: String::new(), found }
            })
            .collect()
    }
}

impl Store {
    /// Where the sums of usage of an organisation differ from a recount of the logs, in one snapshot of both. What is not
    /// counted yet is no difference. `session` of a violation is empty: no sum names one.
    ///
    /// # Errors
    /// When the database fails, or the recount takes longer than two minutes.
    pub async fn usage_violations(&self, org: OrgId) -> Result<Vec<Violation>, StoreError> {
        let store = self.clone();
        bounded(Limit::Check, async move {
            let mut tx = store.long_tx(org).await?;
            let found = differences(&mut tx, org).await?;
            tx.rollback().await?;
            Ok(found)
        })
        .await
    }
}

async fn differences(tx: &mut Tx, org: OrgId) -> Result<Vec<Violation>, StoreError> {
    sqlx::query!("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").execute(&mut **tx).await?;
    sqlx::query!("SELECT set_config('statement_timeout', $1, true)", Limit::CHECK_STATEMENT)
        .fetch_one(&mut **tx)
        .await?;
    let names = UsageTable::WORK_SUMS;
    let keys = &["person", "project", "agent", "provider", "model"];
    let daily = Kept { table: "usage_daily", keys, sums: names };
    let mut recount = Sums::default();
    let mut after = 0;
    loop {
        let rows = sqlx::query!(
            r#"SELECT upto AS "upto!", key AS "key!", sums AS "sums!" FROM recount_usage($1, $2, $3)"#,
            org.0,
            after,
            SESSIONS,
        )
        .fetch_all(&mut **tx)
        .await?;
        let Some(last) = rows.iter().map(|row| row.upto).max() else { break };
        after = last;
        // A session of which nothing is counted has one row, without sums.
        let rows = rows.into_iter().filter(|row| !row.key.is_empty());
        recount.add_all(rows.map(|row| (row.key, row.sums)).collect(), -1);
    }
    recount.add_all(daily.read(tx, org).await?, 1);
    recount.add_all(Kept { table: "usage_gone", ..daily }.read(tx, org).await?, -1);
    let mut found = recount.differences("usage_daily", names);

    // The other tables have the same days in other parts.
    for table in ["usage_model", "usage_person", "usage_project", "usage_hourly"] {
        let mut sums = Sums::default();
        sums.add_all(Kept { table, keys: &[], sums: names }.read(tx, org).await?, 1);
        sums.add_all(Kept { keys: &[], ..daily }.read(tx, org).await?, -1);
        found.extend(sums.differences(table, names));
    }
    for (table, own, of_daily) in [
        ("usage_tool", "calls", &["tool_calls"] as &[&str]),
        ("usage_outcome", "turns", &["turns", "retries"]),
    ] {
        let mut sums = Sums::default();
        sums.add_all(Kept { table, keys: &[], sums: &[own] }.read(tx, org).await?, 1);
        for name in of_daily {
            let kept = Kept { keys: &[], sums: &[name], ..daily };
            sums.add_all(kept.read(tx, org).await?, -1);
        }
        found.extend(sums.differences(table, &[own]));
    }
    Ok(found)
}

/// A table of sums, in some of its parts.
#[derive(Clone, Copy)]
struct Kept<'a> {
    table: &'a str,
    keys: &'a [&'a str],
    sums: &'a [&'a str],
}

impl Kept<'_> {
    async fn read(self, tx: &mut Tx, org: OrgId) -> Result<Vec<(String, Vec<i64>)>, StoreError> {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let rows = sqlx::query!(
            r#"SELECT key AS "key!", sums AS "sums!" FROM usage_sums($1, $2, $3, $4)"#,
            org.0,
            self.table,
            &owned(self.keys),
            &owned(self.sums),
        )
        .fetch_all(&mut **tx)
        .await?;
        Ok(rows.into_iter().map(|row| (row.key, row.sums)).collect())
    }
}
