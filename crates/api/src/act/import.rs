//! Makes a session of what `export` of another service wrote, or the released `opencode export`.
//!
//! ```text
//! upload ─lines→ contents: proved ─▶ blobs, one pack ─┐
//!               events: proved ─▶ an unnamed file ────┴─▶ one transaction: head, log, projections, oracle
//! ```
//!
//! Nothing is visible before the commit. Blobs of an import that failed are named by no row, and are collected.

mod contents;
mod lines;
mod message;
mod place;
mod released;
mod spool;

use bytes::Bytes;
use domain::{Author, OrgId, SessionEvent, SessionId, SnapshotTree, TimestampMs};
use futures::stream::Stream;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use store::{
    Arrival, ImportedEvent, ImportedFiles, LocationKind, LocationRow, NewImport, SessionRow,
};
use tokio::sync::mpsc::channel;

use self::contents::Contents;
use self::lines::LineReader;
use self::message::Whole;
use self::place::Place;
use self::released::{Told, told};
use self::spool::Spool;
use super::resolve::{MANAGED, Workspace, location, workspace};
use super::transfer::{
    AnyHeader, AnyLine, ContentLine, EndLine, EventLine, FORMAT, Header, LineKind, MoreLine,
    VERSION,
};
use crate::ApiState;
use crate::error::ApiError;
use crate::principal::Principal;
use crate::text::{id, shown};

/// The largest export of the released client, which is one JSON value.
const MAX_RELEASED: usize = 64 * 1024 * 1024;
/// Pages of events that wait for the database.
const PAGES: usize = 2;

/// The place of an imported session.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct ImportQuery {
    /// A directory of the service's machine, whose files stay as they are, or one beneath `/workspace`. Without one the
    /// session gets a workspace of its own, with its files.
    directory: Option<String>,
}

/// The fate of a session's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FilesFate {
    /// Its workspace begins with them.
    Restored,
    /// The directory has its own; the session's are in its snapshots alone.
    Left,
    /// There are none.
    None,
}

/// An import that is done.
pub(crate) struct Imported {
    pub(crate) row: SessionRow,
    pub(crate) events: i64,
    pub(crate) files: FilesFate,
    pub(crate) left_out: Vec<String>,
}

/// All that the database needs.
struct Bundle {
    new: NewImport,
    spool: Spool,
    place: LocationRow,
    left_out: Vec<String>,
}

/// Where a session is to work.
struct Target<'s> {
    state: &'s ApiState,
    org: OrgId,
    author: &'s Author,
    /// `None`: in a workspace of its own.
    workspace: Option<Workspace>,
    now: TimestampMs,
}

/// Imports a session under the ids that it has.
///
/// # Errors
/// 400 for what is no export, or a damaged one; 409 when an id is taken, or the workspace is; 413 beyond a bound.
pub(crate) async fn import<S, E>(
    state: &ApiState,
    principal: &Principal,
    query: ImportQuery,
    body: S,
) -> Result<Imported, ApiError>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
{
    let workspace = match query.directory.as_deref().filter(|named| !named.is_empty()) {
        Some(named) => Some(workspace(state.settings(), Some(named)).await?),
        None => None,
    };
    let Principal { org, author } = principal;
    let now = state.clock().now_ms();
    let target = Target { state, org: *org, author, workspace, now };
    let mut lines = LineReader::new(body);
    let first = lines.next().await?.ok_or_else(|| {
        ApiError::invalid(
            "the body is empty; send what `opencode-cloud export` or `opencode export` wrote",
        )
    })?;
    let bundle = match serde_json::from_slice::<AnyHeader>(&first) {
        Ok(header) => {
            known(&header)?;
            own(&target, &first, lines).await?
        }
        Err(_) => of_released(&target, first, lines).await?,
    };
    commit(&target, bundle).await
}

fn known(header: &AnyHeader) -> Result<(), ApiError> {
    if header.format != FORMAT {
        return Err(ApiError::Invalid(format!(
            "`{}` is no form of export that this service reads; `{FORMAT}` is one",
            shown(&header.format)
        )));
    }
    if header.version != VERSION {
        return Err(ApiError::Invalid(format!(
            "the export has version {}, and this service reads version {VERSION}: upgrade the older service",
            header.version
        )));
    }
    Ok(())
}

/// Reads an export of ours.
async fn own<S, E>(
    target: &Target<'_>,
    first: &[u8],
    mut lines: LineReader<S>,
) -> Result<Bundle, ApiError>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
{
    let header: Header = line(first, 1)?;
    let mut contents = target.contents();
    let mut spool = target.spool().await?;
    let mut hash = Sha256::new();
    hash.update(first);
    let mut place: Option<Place> = None;
    loop {
        // Lines that have come already are read without a wait: other callers' requests come in between.
        tokio::task::coop::consume_budget().await;
        let number = lines.count + 1;
        let next = lines.next().await?.ok_or_else(cut)?;
        if !next.ends_with(b"\n") {
            return Err(cut());
        }
        let kind = line::<AnyLine>(&next, number)?.kind;
        let is_content = match kind {
            LineKind::Component | LineKind::Output | LineKind::Object | LineKind::More => true,
            LineKind::Header | LineKind::Event | LineKind::End => false,
        };
        if is_content && place.is_some() {
            return Err(ApiError::Invalid(format!("line {number} comes after the first event")));
        }
        match kind {
            LineKind::Component | LineKind::Output | LineKind::Object => {
                let content = line::<ContentLine>(&next, number)?;
                contents.begin(content).await.map_err(|error| at(number, error))?;
            }
            LineKind::More => {
                let more = line::<MoreLine>(&next, number)?;
                contents.go_on(&more).await.map_err(|error| at(number, error))?;
            }
            LineKind::Event => {
                contents.whole()?;
                let event = line::<EventLine>(&next, number)?;
                let place = match &mut place {
                    Some(place) => place,
                    None => place.insert(Place::new(
                        target.place(&header.session).await?,
                        target.author.clone(),
                    )),
                };
                let adopted = adopt(place, event, spool.events, &contents);
                let adopted = adopted.map_err(|error| at(number, error))?;
                spool.add(&adopted).await?;
            }
            LineKind::End => {
                let end = line::<EndLine>(&next, number)?;
                if end.lines != number - 1 || end.sha256 != hex::encode(hash.finalize()) {
                    return Err(ApiError::invalid(
                        "the export was changed after it was written: its last line has another digest; export it again",
                    ));
                }
                break;
            }
            LineKind::Header => {
                return Err(ApiError::Invalid(format!("line {number} is a second header")));
            }
        }
        hash.update(&next);
    }
    if lines.next().await?.is_some() {
        return Err(ApiError::invalid("the export has lines after its last one"));
    }
    let place = place.ok_or_else(|| ApiError::invalid("the export has no events"))?;
    if spool.events != header.events {
        return Err(ApiError::invalid("the export has another number of events than it says"));
    }
    bundle(target, &header, (place, contents, spool)).await
}

/// Keeps what was proved, and says what the database needs of it.
async fn bundle(
    target: &Target<'_>,
    header: &Header,
    (place, contents, spool): (Place, Contents, Spool),
) -> Result<Bundle, ApiError> {
    match &header.files {
        Some(tree) if !contents.has_tree(tree) => {
            return Err(ApiError::Invalid(format!("the files of snapshot {tree} are missing")));
        }
        None if contents.has_objects() => {
            return Err(ApiError::invalid("the export has objects and names no files"));
        }
        Some(_) | None => {}
    }
    let mut left_out = Vec::new();
    if place.outputs_missing > 0 {
        left_out.push(format!(
            "complete outputs of tools, which have expired ({})",
            place.outputs_missing
        ));
    }
    let pack = format!("imported-{}-{}", place.location.id, uuid::Uuid::new_v4().simple());
    let stored = contents.store(&pack).await?;
    let files = header.files.clone().map(|tree| files(tree, spool.events, pack, stored.bytes));
    let new = NewImport {
        id: header.session.clone(),
        location: place.location.id.clone(),
        events: spool.events,
        last_id: spool.last_id,
        components: stored.components,
        files,
        now: target.now,
    };
    Ok(Bundle { new, spool, place: place.location, left_out })
}

/// The snapshot that has the pack comes after all of the log.
fn files(tree: SnapshotTree, events: i64, pack: String, bytes: Option<u64>) -> ImportedFiles {
    let size = bytes.and_then(|bytes| i64::try_from(bytes).ok()).unwrap_or(0);
    ImportedFiles { tree, ordinal: events + 1, pack: bytes.map(|_| pack), bytes: size }
}

fn adopt(
    place: &mut Place,
    line: EventLine,
    known: i64,
    contents: &Contents,
) -> Result<ImportedEvent, ApiError> {
    let EventLine { seq, id, time, event: kind, version, data, .. } = line;
    if seq != known + 1 {
        return Err(ApiError::Invalid(format!("event {seq} comes after event {known}")));
    }
    let event = SessionEvent::read(&kind, version, data.get())
        .map_err(|error| ApiError::Invalid(format!("event {seq}: {error}")))?;
    // A text that this build would not write is one that it did not understand.
    if !same_json(data.get(), &event.payload()) {
        return Err(ApiError::Invalid(format!(
            "event {seq} (`{}`) has fields that this build does not know; upgrade it",
            shown(&kind)
        )));
    }
    let event = place.adopt(event, known == 0, contents)?;
    Ok(ImportedEvent { id, time, event })
}

fn same_json(one: &str, other: &str) -> bool {
    let read = |text| serde_json::from_str::<serde_json::Value>(text).ok();
    one == other || read(one).is_some_and(|one| read(other) == Some(one))
}

/// The mark that some programs write before UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Parses JSON in which halves of surrogate pairs, as JavaScript writes them after a cut, become U+FFFD.
fn parse_mended(text: &[u8]) -> Result<Whole, serde_json::Error> {
    serde_json::from_slice(text).or_else(|error| {
        let Ok(text) = str::from_utf8(text) else { return Err(error) };
        llm_protocol::value_of(text).and_then(serde_json::from_value)
    })
}

/// Reads an export of the released client.
async fn of_released<S, E>(
    target: &Target<'_>,
    first: Bytes,
    lines: LineReader<S>,
) -> Result<Bundle, ApiError>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
{
    let start = first.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&first);
    if [b"\xff\xfe", b"\xfe\xff"].iter().any(|mark| first.starts_with(*mark)) {
        return Err(ApiError::invalid(
            "this text is UTF-16, as PowerShell's `>` writes it: send UTF-8, such as from `opencode export > FILE` in cmd",
        ));
    }
    if start.trim_ascii_start().first() != Some(&b'{') {
        return Err(ApiError::invalid(
            "this is no export: send what `opencode-cloud export` or `opencode export` wrote",
        ));
    }
    let mut text = start.to_vec();
    text.extend_from_slice(&lines.rest(MAX_RELEASED).await?);
    let parsed = tokio::task::spawn_blocking(move || parse_mended(&text)).await;
    let whole: Whole = parsed.map_err(ApiError::internal)?.map_err(|error| {
        let why = brief(&error.to_string());
        ApiError::Invalid(format!(
            "this is neither an export of ours nor one of `opencode export`: {why}"
        ))
    })?;
    let session: SessionId = id(&whole.info.id)?;
    let place = target.place(&session).await?;
    let default = target.state.settings().default_model.get();
    let Told { events, left_out } = told(whole, &place, &default, target.author, target.now);
    let mut spool = target.spool().await?;
    for event in &events {
        tokio::task::coop::consume_budget().await;
        spool.add(event).await?;
    }
    let new = NewImport {
        id: session,
        location: place.id.clone(),
        events: spool.events,
        last_id: spool.last_id,
        components: Vec::new(),
        files: None,
        now: target.now,
    };
    let left_out = left_out.into_iter().map(|(what, count)| format!("{what} ({count})")).collect();
    Ok(Bundle { new, spool, place, left_out })
}

impl Target<'_> {
    /// Returns an empty spool for the log.
    async fn spool(&self) -> Result<Spool, ApiError> {
        Spool::new(self.state.spools().begin_spool(self.org), self.now).await
    }

    /// Returns what the log needs besides, of which nothing has come.
    fn contents(&self) -> Contents {
        let room = self.state.spools().begin_spool(self.org);
        Contents::new(self.org, self.state.blobs().cloned(), room)
    }

    /// Finds or makes the Location. A workspace of the session's own is one that nobody has used.
    async fn place(&self, session: &SessionId) -> Result<LocationRow, ApiError> {
        let (store, org, now) = (self.state.store(), self.org, self.now);
        if let Some(workspace) = &self.workspace {
            return Ok(location(store, org, workspace.clone(), now).await?.1);
        }
        let project = store.ensure_project(org, MANAGED.to_owned(), now).await?.id;
        // The second is for a session that was here before, and whose workspace is not collected yet.
        for directory in [format!("{MANAGED}/{session}"), format!("{MANAGED}/{session}-{now}")] {
            let kind = LocationKind::Managed;
            let row = store.ensure_location(org, project.clone(), kind, directory, now).await?;
            let is_new = row.fence == 0 && row.seed.is_none();
            if is_new {
                return Ok(row);
            }
        }
        Err(ApiError::Conflict("the workspace is used by another session; import again".to_owned()))
    }
}

async fn commit(target: &Target<'_>, bundle: Bundle) -> Result<Imported, ApiError> {
    let Bundle { new, spool, place, left_out } = bundle;
    let (id, events) = (new.id.clone(), new.events);
    let fate = match (&new.files, place.kind) {
        (None, _) => FilesFate::None,
        (Some(_), LocationKind::Managed) => FilesFate::Restored,
        (Some(_), LocationKind::Local) => FilesFate::Left,
    };
    let store = target.state.store();
    let (sender, receiver) = channel(PAGES);
    let (arrival, read) = tokio::join!(store.import(target.org, new, receiver), spool.send(sender));
    read.map_err(ApiError::internal)?;
    match arrival? {
        Arrival::Arrived => {}
        Arrival::Exists => {
            return Err(ApiError::Conflict(format!(
                "this organisation has session {id}, or a message of it, already, or the file has one message twice; an \
                 import keeps ids: delete that session first, or import into another organisation"
            )));
        }
        Arrival::BeingRemoved => {
            return Err(ApiError::Unavailable {
                message: "a session with this id was deleted a moment ago, and the rest of it is being removed; ask again",
                cause: None,
            });
        }
        Arrival::LocationUsed => {
            return Err(ApiError::Conflict(format!(
                "the workspace {} has files of its own; leave `directory` out, and the session gets a new one",
                place.directory
            )));
        }
        Arrival::Refused(why) => {
            return Err(ApiError::Invalid(format!("this is not the log of a session: {why}")));
        }
    }
    let row = store.session(target.org, id).await?;
    target.state.feeds().touch(&row.at);
    Ok(Imported { row, events, files: fate, left_out })
}

fn line<T: DeserializeOwned>(bytes: &[u8], number: u64) -> Result<T, ApiError> {
    serde_json::from_slice(bytes).map_err(|error| {
        let why = brief(&error.to_string());
        ApiError::Invalid(format!("line {number} of the export cannot be read: {why}"))
    })
}

/// Shortens a reason, which may quote a whole line.
fn brief(why: &str) -> String {
    const MOST: usize = 300;
    why.chars().filter(|c| !c.is_control()).take(MOST).collect()
}

fn cut() -> ApiError {
    ApiError::invalid("the export is cut: its last line is missing; export it again")
}

/// Says at which line an error was found.
fn at(number: u64, error: ApiError) -> ApiError {
    if let ApiError::Invalid(why) = error {
        return ApiError::Invalid(format!("line {number} of the export: {}", brief(&why)));
    }
    error
}
