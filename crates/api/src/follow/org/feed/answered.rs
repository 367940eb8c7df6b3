//! The files that an answer changed, for those who listen.

use domain::WorkspaceSnapshotted;
use store::{Messages, SessionRow, Store};

use crate::changes::changes;
use crate::error::ApiError;
use crate::render::FilesOfAnswer;

/// How many of the newest messages are searched for the answer.
const NEWEST: i64 = 8;

/// Returns what a snapshot says about the answer whose calls caused it; `None` if no answer did, or if nothing changed.
pub(super) async fn files_of_answer(
    store: &Store,
    row: &SessionRow,
    taken: &WorkspaceSnapshotted,
) -> Result<Option<FilesOfAnswer>, ApiError> {
    let Some(turn) = taken.turn.as_ref().filter(|_| !taken.base && !taken.files.is_empty()) else {
        return Ok(None);
    };
    let (org, session) = (row.at.org, &row.at.session);
    let newest = store.transcript(org, session.clone(), Messages::Newest, NEWEST).await?.messages;
    let answer = newest.into_iter().find(|message| message.turn.as_ref() == Some(turn));
    let Some((answer, parent)) = answer.and_then(|it| it.parent.clone().map(|parent| (it, parent)))
    else {
        return Ok(None);
    };
    let asked = store.transcript(org, session.clone(), Messages::One(parent.clone()), 1).await?;
    let Some(prompt) = asked.messages.into_iter().next() else { return Ok(None) };
    let diff = changes(store, row, Some(parent)).await?.diff;
    let tree = taken.parent.as_ref().unwrap_or(&taken.tree).as_str().to_owned();
    let paths = taken.files.iter().map(|file| file.path.clone()).collect();
    Ok(Some(FilesOfAnswer { answer, prompt, tree, paths, diff }))
}
