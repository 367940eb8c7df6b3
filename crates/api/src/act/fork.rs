//! Makes a session that begins with a copy of another's conversation.

use domain::{
    IdMint, LocationRef, MessageId, RecordedEvent, Seq, SessionCreated, SessionEvent,
    SessionForked, SessionId, SnapshotTree, Stamp, ToolRule,
};
use schemars::JsonSchema;
use serde::Deserialize;
use store::{Creation, LocationKind, LocationRow, NewFork, Seed, SessionRow, StoreError};
use tokio::sync::OwnedSemaphorePermit;

use super::resolve::MANAGED;
use super::sessions::untitled;
use crate::ApiState;
use crate::error::ApiError;
use crate::text::id;

/// The longest log that can be copied, in events and in bytes of their payloads.
const MAX_EVENTS: usize = 100_000;
const MAX_BYTES: usize = 256 * 1024 * 1024;
const PAGE: i64 = 1_000;
/// The number of the first copied event. The two events before it describe the fork and its parent.
const FIRST: Seq = Seq(3);

/// The files that a fork works on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Files {
    /// The parent's: both sessions share one Location.
    #[default]
    Shared,
    /// A copy of the parent's files as they were at the cut.
    Copy,
}

/// The place of the cut, and the treatment of the files.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct ForkRequest {
    /// The first message that is not copied; `None` copies all shown messages.
    #[serde(rename = "messageID")]
    message_id: Option<String>,
    /// The fork's id; `None` mints one.
    id: Option<String>,
    #[serde(default)]
    files: Files,
}

/// Makes a fork. A retry with the same id, session, cut and files returns the existing one.
pub(crate) async fn forked(
    state: &ApiState,
    row: SessionRow,
    request: ForkRequest,
) -> Result<SessionRow, ApiError> {
    let (store, org, now) = (state.store(), row.at.org, state.clock().now_ms());
    let before = request.message_id.as_deref().map(id::<MessageId>).transpose()?;
    let fork: SessionId = match request.id.as_deref() {
        Some(text) => id(text)?,
        None => SessionId::mint(&mut IdMint::after(Stamp::default(), now)),
    };
    if request.id.is_some()
        && let Some(known) = earlier(state, &row, &fork, before.as_ref(), request.files).await?
    {
        return Ok(known);
    }
    let (log, _large) = read_whole_log(state, &row).await?;
    let mut mint = IdMint::after(Stamp::default(), now);
    let copy = session_rules::fork(&log, before.as_ref(), FIRST, &mut mint)
        .ok_or(ApiError::NotFound("a message with this id in the conversation was"))?;
    let through = copy.through;
    let (location, files) = match request.files {
        Files::Shared => (store.location(org, row.at.location.clone()).await?, None),
        Files::Copy => {
            let begin = begin(state, &row, &log, through).await?;
            let tree = begin.tree.clone();
            (own_location(state, &row, &fork, begin).await?, Some(tree))
        }
    };
    let (named, rules) = (is_titled(&log), rules_of(&log));
    drop(log); // it may be large, and the copy is as large
    let new = NewFork {
        id: fork.clone(),
        created: SessionCreated {
            by: None,
            project: location.project,
            location: location.id,
            directory: location.directory,
            title: if named { forked_title(&row.title) } else { untitled(now) },
            agent: row.agent.clone(),
            model: row.model.clone(),
            parent: None,
            named,
            rules,
            metadata: row.metadata.clone(),
        },
        forked: SessionForked {
            parent: row.at.session.clone(),
            through,
            before: before.clone(),
            copied: i64::try_from(copy.events.len()).unwrap_or(i64::MAX),
            files,
        },
        events: copy.events,
        last_id: mint.last(),
        now,
    };
    match store.fork(org, new).await? {
        Creation::Created => {}
        // Another request made it after our check.
        Creation::Exists => {
            return earlier(state, &row, &fork, before.as_ref(), request.files)
                .await?
                .ok_or(ApiError::NotFound("session was"));
        }
        Creation::Orphan | Creation::TooDeep | Creation::TooMany => {
            return Err(ApiError::NotFound("session was"));
        }
    }
    let row = store.session(org, fork).await?;
    state.feeds().touch(&row.at);
    Ok(row)
}

/// Returns the fork that an earlier request with this id made.
///
/// # Errors
/// 409 when the id belongs to a different session, cut or choice of files.
async fn earlier(
    state: &ApiState,
    row: &SessionRow,
    fork: &SessionId,
    before: Option<&MessageId>,
    files: Files,
) -> Result<Option<SessionRow>, ApiError> {
    let (store, org) = (state.store(), row.at.org);
    let known = match store.session(org, fork.clone()).await {
        Ok(known) => known,
        Err(StoreError::NotFound) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let begin = store.events(org, fork.clone(), Seq(0), FIRST.0 - 1).await?.items;
    let forked = begin.iter().find_map(|event| {
        if let SessionEvent::SessionForked(forked) = &event.event { Some(forked) } else { None }
    });
    let is_same = forked.is_some_and(|forked| {
        forked.parent == row.at.session
            && forked.before.as_ref() == before
            && forked.files.is_some() == (files == Files::Copy)
    });
    if is_same {
        return Ok(Some(known));
    }
    Err(StoreError::Conflict { what: "a session with this id" }.into())
}

/// Reads the whole log of a session. A log of more than a page comes with a permit, which only one such fork of a gateway
/// has at a time: a fork has its log in memory several times.
async fn read_whole_log(
    state: &ApiState,
    row: &SessionRow,
) -> Result<(Vec<RecordedEvent>, Option<OwnedSemaphorePermit>), ApiError> {
    let mut log: Vec<RecordedEvent> = Vec::new();
    let (mut bytes, mut permit) = (0, None);
    loop {
        let after = log.last().map_or(Seq(0), |event| event.seq);
        if after >= row.seq {
            return Ok((log, permit));
        }
        if permit.is_none() && !log.is_empty() {
            permit = Some(state.enter_large_fork().await?);
        }
        if log.len() >= MAX_EVENTS || bytes > MAX_BYTES {
            return Err(ApiError::TooLarge(format!(
                "a session of more than {MAX_EVENTS} events or {MAX_BYTES} bytes cannot be forked; begin a new one \
                 with a summary of it"
            )));
        }
        let page = state.store().events(row.at.org, row.at.session.clone(), after, PAGE).await?;
        let page = page.items;
        if page.is_empty() {
            return Err(ApiError::NotFound("session was")); // deleted meanwhile
        }
        bytes += page.iter().map(|event| event.event.payload().len()).sum::<usize>();
        log.extend(page);
    }
}

/// Returns the files as they were at the cut, from the Location where the session was at that time. If the session
/// changed none there, these are the Location's newest files.
///
/// # Errors
/// 409 when no snapshot has captured them.
async fn begin(
    state: &ApiState,
    row: &SessionRow,
    log: &[RecordedEvent],
    through: Seq,
) -> Result<Seed, ApiError> {
    let cut = log.partition_point(|event| event.seq <= through);
    // After the next Move, snapshots are of another Location.
    let moved = log.iter().enumerate().skip(cut).find_map(|(n, event)| {
        if let SessionEvent::SessionMoved(moved) = &event.event {
            Some((n, &moved.from))
        } else {
            None
        }
    });
    let (end, location) = moved.unwrap_or((log.len(), &row.at.location));
    let seed = |tree: SnapshotTree| Seed { location: location.clone(), tree };
    let mut history = history::History::new();
    history.extend(&log[..end]);
    if let Some(tree) = history.tree_before(Seq(through.0 + 1)) {
        return Ok(seed(tree.clone()));
    }
    let first = log[cut..end].iter().find_map(|event| {
        if let SessionEvent::WorkspaceSnapshotted(taken) = &event.event {
            Some(taken)
        } else {
            None
        }
    });
    match first {
        // A base snapshot has no changes by calls.
        Some(taken) if taken.base => return Ok(seed(taken.tree.clone())),
        Some(_) => return Err(ApiError::not_captured_then()),
        None => {}
    }
    let at = LocationRef { org: row.at.org, location: location.clone() };
    let newest = state.store().workspace_packs(at).await?.pop();
    Ok(seed(newest.ok_or_else(ApiError::not_captured)?.tree))
}

/// Makes a new workspace that begins with these files. A retry returns the same one.
async fn own_location(
    state: &ApiState,
    row: &SessionRow,
    fork: &SessionId,
    begin: Seed,
) -> Result<LocationRow, ApiError> {
    let (store, org, now) = (state.store(), row.at.org, state.clock().now_ms());
    let directory = format!("{MANAGED}/{fork}");
    let project = row.project.clone();
    let kind = LocationKind::Managed;
    let location = store.ensure_location(org, project, kind, directory, now).await?;
    let at = LocationRef { org, location: location.id.clone() };
    store.seed_location(at, begin).await?;
    Ok(location)
}

fn is_titled(log: &[RecordedEvent]) -> bool {
    log.iter().any(|event| {
        matches!(&event.event, SessionEvent::SessionRenamed(_))
            || matches!(&event.event, SessionEvent::SessionCreated(created) if created.named)
    })
}

/// Returns the session's rules about tool calls, which its forks keep.
fn rules_of(log: &[RecordedEvent]) -> Vec<ToolRule> {
    match log.first().map(|first| &first.event) {
        Some(SessionEvent::SessionCreated(created)) => created.rules.clone(),
        Some(_) | None => Vec::new(),
    }
}

/// Returns `Title (fork #1)` for `Title`, and `Title (fork #2)` for that.
fn forked_title(title: &str) -> String {
    let numbered = title.strip_suffix(')').and_then(|title| title.rsplit_once(" (fork #"));
    match numbered.and_then(|(title, number)| Some((title, number.parse::<u32>().ok()?))) {
        Some((title, number)) => format!("{title} (fork #{})", number.saturating_add(1)),
        None => format!("{title} (fork #1)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forks_of_a_title_are_counted() {
        for (title, forked) in [
            ("Fix it", "Fix it (fork #1)"),
            ("Fix it (fork #1)", "Fix it (fork #2)"),
            ("Fix it (fork #x)", "Fix it (fork #x) (fork #1)"),
            ("(fork #9)", "(fork #9) (fork #1)"),
        ] {
            assert_eq!(forked_title(title), forked);
        }
    }
}
