//! Questions about usage: the sums of a time, in steps and in parts.

use domain::{OrgId, TimestampMs, words};

use crate::{Store, StoreError};

/// The most rows of one answer.
pub const MAX_USAGE_ROWS: usize = 10_000;

words! {
    /// The thing that is summed up.
    #[derive(Default)]
    pub enum UsageOf {
        /// Sessions, prompts, turns, tokens, costs, lines.
        #[default]
        Work = "work",
        /// Calls of tools, by tool and outcome.
        Tools = "tools",
        /// Turns by their outcome and its error, and requests that were made again.
        Ends = "ends",
    }
}

words! {
    /// One thing by which usage is divided or selected.
    pub enum UsageKey {
        /// The author of the newest prompt: a person, a service account or a key. Empty if nobody knows.
        Person = "person",
        /// The project.
        Project = "project",
        /// The agent.
        Agent = "agent",
        /// The provider of the model.
        Provider = "provider",
        /// The model.
        Model = "model",
        /// The tool.
        Tool = "tool",
        /// The outcome of a call or a turn.
        Outcome = "outcome",
        /// The code of a turn's error.
        Code = "code",
    }
}

words! {
    /// The steps of time of an answer, in UTC.
    #[derive(Default)]
    pub enum UsageStep {
        /// Hours.
        Hour = "hour",
        /// Days.
        #[default]
        Day = "day",
        /// Weeks, from Monday.
        Week = "week",
        /// Months.
        Month = "month",
        /// One for the whole time.
        All = "all",
    }
}

/// A table of sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageTable {
    name: &'static str,
    keys: &'static [UsageKey],
    /// The names of its sums, in the order of [`UsageRow::sums`].
    pub sums: &'static [&'static str],
}

impl UsageTable {
    /// The sums of [`UsageOf::Work`].
    pub const WORK_SUMS: &'static [&'static str] = &[
        "sessions",
        "prompts",
        "turns",
        "failed",
        "interrupted",
        "turn_ms",
        "requests",
        "retries",
        "unpriced",
        "compactions",
        "input_tokens",
        "output_tokens",
        "reasoning_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "cost_nanos",
        "tool_calls",
        "tool_failures",
        "lines_added",
        "lines_removed",
    ];

    const fn work(name: &'static str, keys: &'static [UsageKey]) -> Self {
        Self { name, keys, sums: Self::WORK_SUMS }
    }

    const ALL_KEYS: &'static [UsageKey] = &[
        UsageKey::Person,
        UsageKey::Project,
        UsageKey::Agent,
        UsageKey::Provider,
        UsageKey::Model,
    ];
    const HOURLY: Self = Self::work("usage_hourly", Self::ALL_KEYS);
    const DAILY: Self = Self::work("usage_daily", Self::ALL_KEYS);
    const MODEL: Self =
        Self::work("usage_model", &[UsageKey::Provider, UsageKey::Model, UsageKey::Agent]);
    const PERSON: Self = Self::work("usage_person", &[UsageKey::Person]);
    const PROJECT: Self = Self::work("usage_project", &[UsageKey::Project]);
    const TOOL: Self = Self {
        name: "usage_tool",
        keys: &[UsageKey::Tool, UsageKey::Outcome],
        sums: &["calls", "run_ms"],
    };
    const OUTCOME: Self = Self {
        name: "usage_outcome",
        keys: &[UsageKey::Provider, UsageKey::Model, UsageKey::Outcome, UsageKey::Code],
        sums: &["turns", "turn_ms"],
    };

    /// Whether its rows say who wrote prompts.
    #[must_use]
    pub fn has_people(self) -> bool {
        self.keys.contains(&UsageKey::Person)
    }

    /// The keys by which sums of `of` are kept.
    #[must_use]
    pub const fn keys_of(of: UsageOf) -> &'static [UsageKey] {
        match of {
            UsageOf::Work => Self::ALL_KEYS,
            UsageOf::Tools => Self::TOOL.keys,
            UsageOf::Ends => Self::OUTCOME.keys,
        }
    }
}

/// A question about usage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageQuery {
    /// The thing that is summed up.
    pub of: UsageOf,
    /// The beginning of the time.
    pub from: TimestampMs,
    /// Its end, which is not part of it.
    pub to: TimestampMs,
    /// The beginning of another time, up to `from`, that is summed up apart.
    pub before: Option<TimestampMs>,
    /// The steps.
    pub step: UsageStep,
    /// The parts; at most three.
    pub by: Vec<UsageKey>,
    /// Selects rows that have one of the values given for each key.
    pub only: Vec<(UsageKey, String)>,
}

impl UsageQuery {
    /// The smallest table that has its keys. `None`: no table has all of them in such steps.
    #[must_use]
    pub fn table(&self) -> Option<UsageTable> {
        let tables: &[UsageTable] = match (self.of, self.step) {
            (UsageOf::Work, UsageStep::Hour) => &[UsageTable::HOURLY],
            (UsageOf::Work, _) => {
                &[UsageTable::PERSON, UsageTable::PROJECT, UsageTable::MODEL, UsageTable::DAILY]
            }
            (UsageOf::Tools | UsageOf::Ends, UsageStep::Hour) => &[],
            (UsageOf::Tools, _) => &[UsageTable::TOOL],
            (UsageOf::Ends, _) => &[UsageTable::OUTCOME],
        };
        let has_all = |table: &&UsageTable| {
            let mut keys = self.by.iter().chain(self.only.iter().map(|(key, _)| key));
            keys.all(|key| table.keys.contains(key))
        };
        tables.iter().find(has_all).copied()
    }
}

/// The sums of a step and a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// Whether it is of the other time.
    pub is_earlier: bool,
    /// The beginning of the step.
    pub starts: TimestampMs,
    /// The part: a value for each of [`UsageQuery::by`].
    pub keys: Vec<String>,
    /// The sums, in the order of [`UsageTable::sums`].
    pub sums: Vec<i64>,
    /// How many have written a prompt, if the table says who did.
    pub people: Option<i64>,
}

/// An answer about usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageAnswer {
    /// The rows, by time and part. One more than [`MAX_USAGE_ROWS`] says that there are too many.
    pub rows: Vec<UsageRow>,
    /// Up to when all that happened is in it, by the database's clock; `None` before anything was counted.
    pub as_of: Option<TimestampMs>,
}

impl Store {
    /// The answer to a question about usage, read from `table`, by an index.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn usage(
        &self,
        org: OrgId,
        query: UsageQuery,
        table: UsageTable,
    ) -> Result<UsageAnswer, StoreError> {
        let names = |keys: Vec<&str>| keys.into_iter().map(str::to_owned).collect::<Vec<_>>();
        let sums = names(table.sums.to_vec());
        let by = names(query.by.iter().map(|key| domain::Word::as_str(*key)).collect());
        let (keys, values): (Vec<String>, Vec<String>) = query
            .only
            .iter()
            .map(|(key, value)| (domain::Word::as_str(*key).to_owned(), value.clone()))
            .unzip();
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    r#"SELECT earlier AS "is_earlier!", starts_ms AS "starts!", keys AS "keys!", sums AS "sums!", people
                       FROM read_usage($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"#,
                    org.0,
                    table.name,
                    &sums,
                    query.before.unwrap_or(query.from),
                    query.from,
                    query.to,
                    domain::Word::as_str(query.step),
                    &by,
                    &keys,
                    &values,
                    i64::try_from(MAX_USAGE_ROWS).unwrap_or(i64::MAX).saturating_add(1),
                )
                .fetch_all(&mut *connection)
                .await?;
                let as_of = sqlx::query_scalar!(
                    "SELECT read_ms FROM usage_cursor WHERE org_id = $1",
                    org.0
                )
                .fetch_optional(&mut *connection)
                .await?;
                let rows = rows.into_iter().map(|row| UsageRow {
                    is_earlier: row.is_earlier,
                    starts: row.starts,
                    keys: row.keys,
                    sums: row.sums,
                    people: row.people,
                });
                Ok(UsageAnswer { rows: rows.collect(), as_of })
            })
        })
        .await
    }
}

/// The names of people and the directories of projects, by id, as far as anybody knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageNames(pub std::collections::BTreeMap<String, String>);

impl Store {
    /// The names of the people and the directories of the projects with these ids.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn usage_names(
        &self,
        org: OrgId,
        people: Vec<String>,
        projects: Vec<String>,
    ) -> Result<UsageNames, StoreError> {
        if people.is_empty() && projects.is_empty() {
            return Ok(UsageNames::default());
        }
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    r#"SELECT id AS "id!", name AS "name!" FROM api_key WHERE org_id = $1 AND id = ANY ($2)
                       UNION ALL
                       SELECT id, coalesce(name, email) FROM principal
                       WHERE org_id = $1 AND id = ANY ($2) AND coalesce(name, email) IS NOT NULL
                       UNION ALL
                       SELECT id, worktree FROM project WHERE org_id = $1 AND id = ANY ($3)"#,
                    org.0,
                    &people,
                    &projects,
                )
                .fetch_all(&mut *connection)
                .await?;
                Ok(UsageNames(rows.into_iter().map(|row| (row.id, row.name)).collect()))
            })
        })
        .await
    }
}
