//! Writes a session for another service: its log, and everything that the log names.

use std::collections::{BTreeMap, BTreeSet};

use blobs::{BlobError, BlobKey};
use bytes::Bytes;
use domain::{
    ComponentList, Control, LocationId, LocationRef, MessageId, OrgId, RecordedEvent, Seq,
    SessionEvent, SnapshotTree, ToolSettled,
};
use futures::stream::{self, Stream, StreamExt};
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use snapshots::{ObjectKind, ObjectWalk, TreeId};
use store::{BlobUse, SessionRow};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::transfer::{
    ContentLine, EndLine, EventLine, FORMAT, Header, LineKind, MAX_EVENTS, MoreLine, OUTPUTS,
    ObjectWord, PIECE, VERSION, base64,
};
use crate::ApiState;
use crate::error::ApiError;

const PAGE: i64 = 1_000;
/// Bytes that are sent at once.
const CHUNK: usize = 64 * 1024;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The names of everything that a log needs besides itself.
#[derive(Default)]
struct Needs {
    /// Lists of components, and single ones of older attempts.
    lists: BTreeSet<String>,
    components: BTreeSet<String>,
    outputs: BTreeSet<String>,
    trees: BTreeSet<SnapshotTree>,
    /// The Locations that the session has left.
    left: Vec<LocationId>,
    /// Moves that wait in the inbox.
    moves: BTreeSet<MessageId>,
}

/// Returns the lines of a session's export. A failure after the first line breaks the stream: then its last line is
/// missing, and no service imports it.
///
/// # Errors
/// 409 for a session that works; 413 for a log that is too long; 400 when this gateway cannot read its blobs.
pub(crate) async fn export(
    state: &ApiState,
    row: SessionRow,
) -> Result<impl Stream<Item = Result<Bytes, Cause>> + Send + use<>, ApiError> {
    if row.busy {
        return Err(ApiError::Busy(row.at.session));
    }
    if row.seq.0 > MAX_EVENTS {
        let message = format!("a session of more than {MAX_EVENTS} events cannot be exported");
        return Err(ApiError::TooLarge(message));
    }
    let mut needs = Needs::default();
    let mut log = Log::new(state, &row);
    while let Some(page) = log.next().await? {
        page.iter().for_each(|event| needs.note(&event.event));
    }
    if let Some(waiting) = needs.moves.first() {
        return Err(ApiError::Conflict(format!(
            "a Move waits in the session's inbox, and its destination is of this service: let it run, or cancel {waiting}"
        )));
    }
    let (walk, files) = open_files(state, &row, &mut needs).await?;
    if !needs.outputs.is_empty() && state.blobs().is_none() {
        return Err(unseen());
    }
    let header = Header {
        kind: LineKind::Header,
        format: FORMAT.to_owned(),
        version: VERSION,
        session: row.at.session.clone(),
        title: row.title.clone(),
        exported: state.clock().now_ms(),
        events: row.seq.0,
        files,
    };
    let (sender, receiver) = channel(2);
    let work = write(state.clone(), row, header, needs, walk, Lines::new(sender));
    let failure = stream::once(work).filter_map(async |done| done.err().map(Err));
    Ok(stream::select(received(receiver).map(Ok), failure))
}

fn received(receiver: Receiver<Bytes>) -> impl Stream<Item = Bytes> + Send {
    stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)))
}

fn unseen() -> ApiError {
    ApiError::invalid(
        "this gateway does not see the workers' blobs, so it cannot export files or long outputs: start it with --blob-url",
    )
}

/// Reads a log in pages, up to where it was when the export began.
struct Log<'s> {
    state: &'s ApiState,
    row: &'s SessionRow,
    known: Seq,
}

impl<'s> Log<'s> {
    fn new(state: &'s ApiState, row: &'s SessionRow) -> Self {
        Self { state, row, known: Seq(0) }
    }

    async fn next(&mut self) -> Result<Option<Vec<RecordedEvent>>, ApiError> {
        let left = self.row.seq.0 - self.known.0;
        if left <= 0 {
            return Ok(None);
        }
        let (org, session) = (self.row.at.org, self.row.at.session.clone());
        let page = self.state.store().events(org, session, self.known, left.min(PAGE)).await?;
        match page.items.last() {
            Some(last) => self.known = last.seq,
            None => return Err(ApiError::NotFound("session was")), // deleted meanwhile
        }
        Ok(Some(page.items))
    }
}

impl Needs {
    fn note(&mut self, event: &SessionEvent) {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the others name nothing")]
        match event {
            SessionEvent::AttemptStarted(started) => match &started.components {
                ComponentList::Stored(list) => {
                    self.lists.insert(list.clone());
                }
                ComponentList::Inline(names) => self.components.extend(names.values().cloned()),
            },
            SessionEvent::ToolSettled(settled) => self.outputs.extend(output_of(settled)),
            SessionEvent::SessionMoved(moved) => self.left.push(moved.from.clone()),
            SessionEvent::ControlAdmitted(admitted) => {
                if let Control::Move { .. } = admitted.control {
                    self.moves.insert(admitted.message.clone());
                }
            }
            SessionEvent::ControlDelivered(delivered) => {
                self.moves.remove(&delivered.message);
            }
            SessionEvent::InputCancelled(cancelled) => {
                self.moves.remove(&cancelled.message);
            }
            _ => {}
        }
        self.trees.extend(trees_of(event).into_iter().cloned());
    }
}

/// Returns the name of the blob with a result's complete text.
pub(super) fn output_of(settled: &ToolSettled) -> Option<String> {
    settled.managed_path.as_deref()?.strip_prefix(OUTPUTS).map(str::to_owned)
}

/// Returns the trees that an event names.
pub(super) fn trees_of(event: &SessionEvent) -> Vec<&SnapshotTree> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others name no files")]
    match event {
        SessionEvent::WorkspaceSnapshotted(taken) => {
            [Some(&taken.tree), taken.parent.as_ref()].into_iter().flatten().collect()
        }
        SessionEvent::WorkspaceRestored(restored) => restored.tree.iter().collect(),
        SessionEvent::RevertStaging(staging) => {
            [Some(&staging.original), staging.target.as_ref()].into_iter().flatten().collect()
        }
        SessionEvent::RevertStaged(staged) => staged.original.iter().collect(),
        SessionEvent::SessionMoved(moved) => moved.tree.iter().collect(),
        SessionEvent::SessionForked(forked) => forked.files.iter().collect(),
        _ => Vec::new(),
    }
}

/// Opens the objects of all trees that the log names and of the Location's newest one, which is returned too.
async fn open_files(
    state: &ApiState,
    row: &SessionRow,
    needs: &mut Needs,
) -> Result<(Option<ObjectWalk>, Option<SnapshotTree>), ApiError> {
    let org = row.at.org;
    let mut newest = newest_tree(state, row.at.location_ref()).await?;
    needs.trees.extend(newest.clone());
    if needs.trees.is_empty() {
        return Ok((None, None));
    }
    let blobs = state.blobs().ok_or_else(unseen)?.clone();
    if newest.is_none() {
        // Nobody has worked at this place, so it has no snapshot. It begins without files wherever it goes.
        let empty = SnapshotTree::try_from(TreeId::empty().to_string());
        let empty = empty.map_err(ApiError::internal)?;
        needs.trees.insert(empty.clone());
        newest = Some(empty);
    }
    let trees: Result<Vec<_>, _> = needs.trees.iter().map(|tree| tree.as_str().parse()).collect();
    let trees = trees.map_err(ApiError::internal)?;
    let places = needs.left.iter().chain([&row.at.location]).cloned().collect();
    let packs = state.store().pack_names(org, places).await?;
    let walk = ObjectWalk::open(blobs, org.to_string(), packs, trees).await;
    Ok((Some(walk.map_err(ApiError::internal)?), newest))
}

/// Returns a Location's newest tree, or the one that it begins with.
async fn newest_tree(state: &ApiState, at: LocationRef) -> Result<Option<SnapshotTree>, ApiError> {
    let newest = state.store().workspace_packs(at.clone()).await?.pop();
    if let Some(newest) = newest {
        return Ok(Some(newest.tree));
    }
    let seed = state.store().location(at.org, at.location).await?.seed;
    Ok(seed.map(|seed| seed.tree))
}

/// Counts and hashes lines on their way out.
struct Lines {
    sender: Sender<Bytes>,
    waiting: Vec<u8>,
    hash: Sha256,
    lines: u64,
}

impl Lines {
    fn new(sender: Sender<Bytes>) -> Self {
        Self { sender, waiting: Vec::new(), hash: Sha256::new(), lines: 0 }
    }

    async fn add(&mut self, line: &impl Serialize) -> Result<(), Cause> {
        let from = self.waiting.len();
        serde_json::to_writer(&mut self.waiting, line)?;
        self.waiting.push(b'\n');
        self.hash.update(&self.waiting[from..]);
        self.lines += 1;
        if self.waiting.len() >= CHUNK { self.send().await } else { Ok(()) }
    }

    async fn send(&mut self) -> Result<(), Cause> {
        let chunk = std::mem::take(&mut self.waiting);
        Ok(self.sender.send(chunk.into()).await?)
    }

    async fn content(
        &mut self,
        (kind, object): (LineKind, Option<ObjectWord>),
        name: &str,
        bytes: &[u8],
    ) -> Result<(), Cause> {
        let (first, rest) = bytes.split_at(bytes.len().min(PIECE));
        let size = bytes.len() as u64;
        let line = ContentLine { kind, name: name.to_owned(), object, size, data: base64(first) };
        self.add(&line).await?;
        for piece in rest.chunks(PIECE) {
            self.add(&MoreLine { kind: LineKind::More, data: base64(piece) }).await?;
        }
        Ok(())
    }

    async fn end(mut self) -> Result<(), Cause> {
        let sha256 = hex::encode(self.hash.clone().finalize());
        let line = EndLine { kind: LineKind::End, lines: self.lines, sha256 };
        self.add(&line).await?;
        self.send().await
    }
}

async fn write(
    state: ApiState,
    row: SessionRow,
    header: Header,
    needs: Needs,
    walk: Option<ObjectWalk>,
    mut lines: Lines,
) -> Result<(), Cause> {
    let org = row.at.org;
    lines.add(&header).await?;
    write_components(&state, org, &needs, &mut lines).await?;
    if let Some(blobs) = state.blobs() {
        for name in &needs.outputs {
            let key = BlobKey::new(&org.to_string(), BlobUse::ToolOutput.kind(), name)?;
            match blobs.get(&key).await {
                Ok(bytes) => lines.content((LineKind::Output, None), name, &bytes).await?,
                // It has expired: the bounded text of the result stands alone.
                Err(BlobError::NotFound(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    if let Some(mut walk) = walk {
        while let Some(object) = walk.next().await? {
            let word = match object.kind {
                ObjectKind::Tree => ObjectWord::Tree,
                ObjectKind::File => ObjectWord::File,
            };
            let kind = (LineKind::Object, Some(word));
            lines.content(kind, &object.id, &object.bytes).await?;
        }
    }
    let mut log = Log::new(&state, &row);
    while let Some(page) = log.next().await? {
        for event in page {
            lines.add(&line_of(&event)?).await?;
        }
    }
    lines.end().await
}

/// Writes each component once, and after a list its members.
async fn write_components(
    state: &ApiState,
    org: OrgId,
    needs: &Needs,
    lines: &mut Lines,
) -> Result<(), Cause> {
    let kind = (LineKind::Component, None);
    let mut members = needs.components.clone();
    for list in &needs.lists {
        let bytes = state.store().component(org, list).await?;
        let names: BTreeMap<String, String> = serde_json::from_slice(&bytes)?;
        members.extend(names.into_values());
        lines.content(kind, list, &bytes).await?;
    }
    for component in members.difference(&needs.lists) {
        let bytes = state.store().component(org, component).await?;
        lines.content(kind, component, &bytes).await?;
    }
    Ok(())
}

fn line_of(event: &RecordedEvent) -> Result<EventLine, serde_json::Error> {
    Ok(EventLine {
        kind: LineKind::Event,
        seq: event.seq.0,
        id: event.id.clone(),
        time: event.time,
        event: event.event.kind().to_owned(),
        version: event.event.version(),
        data: RawValue::from_string(event.event.payload())?,
    })
}
