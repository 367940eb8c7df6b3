//! Lists of sessions, newest first, a page at a time.

use domain::{OrgId, ProjectId, SessionId, TimestampMs};

use crate::session::session_row;
use crate::{SessionRow, Store, StoreError};

/// How many sessions one page looks at, at most, while it seeks those that a filter selects.
pub const LOOKED_AT: i64 = 20_000;

/// Whose sessions a list has. An index has each of them in the order of the list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SessionsOf {
    /// All of the organisation.
    #[default]
    Organisation,
    /// Those of a project.
    Project(ProjectId),
    /// Those that work in a directory.
    Directory(String),
    /// The children of a session.
    Parent(SessionId),
}

/// Selects the sessions of a list. The default selects all of the organisation that are not archived.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Whose sessions.
    pub of: SessionsOf,
    /// Archived sessions too.
    pub with_archived: bool,
    /// Only sessions of this project.
    pub project: Option<ProjectId>,
    /// Only sessions that work in this directory or below it.
    pub below: Option<String>,
    /// Only sessions without a parent.
    pub only_roots: bool,
    /// Only sessions that changed at this time or later.
    pub updated_from: Option<TimestampMs>,
    /// Only sessions that changed before this time.
    pub updated_before: Option<TimestampMs>,
    /// Only sessions whose title contains this text, in upper or lower case.
    pub title: Option<String>,
    /// Only sessions that follow this place in the list: a time of creation and an id.
    pub after: Option<(TimestampMs, SessionId)>,
}

impl From<SessionsOf> for SessionFilter {
    fn from(of: SessionsOf) -> Self {
        Self { of, ..Self::default() }
    }
}

impl SessionFilter {
    /// Whether more than an index decides.
    fn has_conditions(&self) -> bool {
        self.project.is_some()
            || self.below.is_some()
            || self.only_roots
            || self.updated_from.is_some()
            || self.updated_before.is_some()
            || self.title.is_some()
    }
}

/// A page of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionPage {
    /// The sessions, newest first.
    pub rows: Vec<SessionRow>,
    /// Where to go on, for [`SessionFilter::after`]; `None`: nothing follows.
    pub next: Option<(TimestampMs, SessionId)>,
}

impl Store {
    /// Lists sessions, newest first: at most `limit` of those that the filter selects. A page looks at no more than
    /// [`LOOKED_AT`] sessions, so it may have fewer than `limit`, and others follow all the same.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn sessions(
        &self,
        org: OrgId,
        filter: SessionFilter,
        limit: i64,
    ) -> Result<SessionPage, StoreError> {
        let has_conditions = filter.has_conditions();
        let (from_ms, from) = match filter.after {
            Some((time, id)) => (time, String::from(id)),
            None => (TimestampMs::MAX, String::new()),
        };
        // A statement for each list: one whose main condition may be off has no index in the order of the list. What
        // is inside looks along the index, from the place where the page begins; what is outside filters.
        macro_rules! list {
            ($connection:expr, $of:literal, $value:expr) => {{
                let rows = sqlx::query!(
                    "SELECT s.id, s.location_id, s.project_id, s.directory, s.title, s.agent, s.provider, s.model,
                         s.variant, s.created_ms, s.updated_ms, s.outcome, s.parent_id, s.fork_of, s.revert,
                         s.compacting_ms, s.archived_ms, s.metadata, s.notices, s.input_tokens, s.output_tokens,
                         s.reasoning_tokens, s.cache_read_tokens, s.cache_write_tokens, s.cost_nanos,
                         (h.ready OR h.open) AS \"ready!\", h.next_seq
                     FROM (SELECT * FROM
                         (SELECT * FROM session s
                         WHERE s.org_id = $1 AND " + $of + "
                             AND s.created_ms <= $3 AND (s.created_ms < $3 OR s.id > $4::text COLLATE \"C\")
                         ORDER BY s.created_ms DESC, s.id LIMIT $5) AS s
                         WHERE ($6::text IS NULL OR s.project_id = $6)
                             AND ($7::text IS NULL OR s.directory = $7 OR starts_with(s.directory, $7 || '/'))
                             AND ($8::boolean IS FALSE OR s.parent_id IS NULL)
                             AND ($9::bigint IS NULL OR s.updated_ms >= $9)
                             AND ($10::bigint IS NULL OR s.updated_ms < $10)
                             AND ($11::text IS NULL OR position(lower($11) IN lower(s.title)) > 0)
                         ORDER BY s.created_ms DESC, s.id LIMIT $12) AS s
                     JOIN session_head h ON h.org_id = $1 AND h.id = s.id
                     ORDER BY s.created_ms DESC, s.id",
                    org.0,
                    $value,
                    from_ms,
                    from,
                    LOOKED_AT,
                    filter.project.as_ref().map(ProjectId::as_str),
                    filter.below,
                    filter.only_roots,
                    filter.updated_from,
                    filter.updated_before,
                    filter.title,
                    limit,
                )
                .fetch_all(&mut *$connection)
                .await?;
                let rows: Vec<SessionRow> = rows
                    .into_iter()
                    .map(|row| session_row!(org, row.id.parse()?, row))
                    .collect::<Result<_, StoreError>>()?;
                let is_full = i64::try_from(rows.len()).is_ok_and(|count| count >= limit);
                let next = if is_full {
                    rows.last().map(|last| (last.created_ms, last.at.session.clone()))
                } else if has_conditions {
                    // The last that was looked at, if that many were.
                    let last = sqlx::query!(
                        "SELECT s.created_ms, s.id FROM session s
                         WHERE s.org_id = $1 AND " + $of + "
                             AND s.created_ms <= $3 AND (s.created_ms < $3 OR s.id > $4::text COLLATE \"C\")
                         ORDER BY s.created_ms DESC, s.id OFFSET $5::bigint - 1 LIMIT 1",
                        org.0,
                        $value,
                        from_ms,
                        from,
                        LOOKED_AT,
                    )
                    .fetch_optional(&mut *$connection)
                    .await?;
                    last.map(|last| Ok::<_, StoreError>((last.created_ms, last.id.parse()?)))
                        .transpose()?
                } else {
                    None
                };
                SessionPage { rows, next }
            }};
        }
        self.read(org, move |connection| {
            Box::pin(async move {
                let page = match (filter.of, filter.with_archived) {
                    (SessionsOf::Organisation, false) => {
                        list!(
                            connection,
                            "$2::text IS NULL AND s.archived_ms IS NULL",
                            None::<&str>
                        )
                    }
                    (SessionsOf::Organisation, true) => {
                        list!(connection, "$2::text IS NULL", None::<&str>)
                    }
                    (SessionsOf::Project(project), false) => list!(
                        connection,
                        "s.project_id = $2 AND s.archived_ms IS NULL",
                        project.as_str()
                    ),
                    (SessionsOf::Project(project), true) => {
                        list!(connection, "s.project_id = $2", project.as_str())
                    }
                    (SessionsOf::Directory(directory), false) => list!(
                        connection,
                        "left(s.directory, 512) = left($2, 512) AND s.directory = $2 AND s.archived_ms IS NULL",
                        directory
                    ),
                    (SessionsOf::Directory(directory), true) => list!(
                        connection,
                        "left(s.directory, 512) = left($2, 512) AND s.directory = $2",
                        directory
                    ),
                    // A session has few children: what is archived is left out as they are read.
                    (SessionsOf::Parent(parent), with_archived) => {
                        let mut page = list!(connection, "s.parent_id = $2", parent.as_str());
                        page.rows.retain(|row| with_archived || row.archived_ms.is_none());
                        page
                    }
                };
                Ok(page)
            })
        })
        .await
    }
}
