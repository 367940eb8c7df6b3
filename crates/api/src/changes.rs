//! Reads which changes of files count for a session.

use std::collections::{BTreeMap, BTreeSet};

use domain::{MessageId, Seq, SnapshotTree};
use store::{ChangeRow, MessageRow, SessionRow, Store};

use crate::error::ApiError;
use crate::view::{AddedSteps, DiffView};

/// The most changes in one query.
const CHANGES: i64 = 1_000;

/// The changes that calls of a session made, added up.
#[derive(Debug, Default)]
pub(crate) struct SessionChanges {
    pub(crate) diff: DiffView,
    /// The files before the first change.
    pub(crate) from: Option<SnapshotTree>,
    /// The files after the last change.
    pub(crate) to: Option<SnapshotTree>,
    /// Every path that a change lists.
    pub(crate) paths: BTreeSet<String>,
    /// Whether a change has files that it does not list.
    pub(crate) unlisted: bool,
}

/// Returns the changes that calls of the session made, without those that a staged Revert has taken back. Reads them page
/// by page, and keeps one page at a time.
pub(crate) async fn changes(
    store: &Store,
    row: &SessionRow,
    message: Option<MessageId>,
) -> Result<SessionChanges, ApiError> {
    let mut all = SessionChanges::default();
    let mut steps = AddedSteps::default();
    let mut after = Seq(0);
    loop {
        let (org, session) = (row.at.org, row.at.session.clone());
        let page = store.changes(org, session, message.clone(), after, CHANGES).await?;
        after = page.items.last().map_or(after, |change| change.seq);
        for change in page.items {
            if change.base || !is_shown(row, change.seq) {
                continue;
            }
            if all.to.replace(change.tree).is_none() {
                all.from = change.parent;
            }
            all.unlisted |= change.more > 0;
            all.paths.extend(change.files.iter().map(|file| file.path.clone()));
            steps.add(change.files, change.more);
        }
        if !page.more {
            break;
        }
    }
    all.diff = steps.into_diff();
    Ok(all)
}

/// The changes of files of some messages.
#[derive(Debug, Default)]
pub(crate) struct MessageChanges {
    answers: BTreeMap<MessageId, AnswerFiles>,
    prompts: BTreeMap<MessageId, AddedSteps>,
}

/// The files that an answer changed.
#[derive(Debug)]
pub(crate) struct AnswerFiles {
    /// The files of the Location before, otherwise after.
    pub(crate) tree: SnapshotTree,
    /// The paths of those that changed.
    pub(crate) paths: BTreeSet<String>,
}

/// The most pages of changes that are read for a list of messages.
const PAGES: usize = 4;

impl MessageChanges {
    /// Reads the changes that the answers among `messages`, which are in order, made. Those after a bounded number of pages are
    /// left out.
    pub(crate) async fn read(
        store: &Store,
        row: &SessionRow,
        messages: &[MessageRow],
    ) -> Result<Self, ApiError> {
        let answers = messages.iter().filter_map(|message| Some((message.turn.as_ref()?, message)));
        let answers: BTreeMap<_, _> = answers.collect();
        let mut all = Self::default();
        let Some(first) = messages.first().filter(|_| !answers.is_empty()) else { return Ok(all) };
        let mut after = first.seq;
        for _ in 0..PAGES {
            let (org, session) = (row.at.org, row.at.session.clone());
            let page = store.changes(org, session, None, after, CHANGES).await?;
            after = page.items.last().map_or(after, |change| change.seq);
            for change in page.items {
                let answer = change.turn.as_ref().and_then(|turn| answers.get(turn));
                if let Some(answer) = answer.filter(|_| !change.base && is_shown(row, change.seq)) {
                    all.add(answer, change);
                }
            }
            if !page.more {
                break;
            }
        }
        Ok(all)
    }

    fn add(&mut self, answer: &MessageRow, change: ChangeRow) {
        let tree = change.parent.unwrap_or(change.tree);
        let new = || AnswerFiles { tree, paths: BTreeSet::new() };
        let files = self.answers.entry(answer.id.clone()).or_insert_with(new);
        files.paths.extend(change.files.iter().map(|file| file.path.clone()));
        if let Some(prompt) = &answer.parent {
            self.prompts.entry(prompt.clone()).or_default().add(change.files, change.more);
        }
    }

    /// Takes the files that an answer changed.
    pub(crate) fn take_answer(&mut self, message: &MessageId) -> Option<AnswerFiles> {
        self.answers.remove(message).filter(|files| !files.paths.is_empty())
    }

    /// Takes the files that the answers to a prompt changed.
    pub(crate) fn take_prompt(&mut self, message: &MessageId) -> Option<DiffView> {
        self.prompts.remove(message).map(AddedSteps::into_diff)
    }
}

/// Returns whether a change at `seq` still stands: no staged Revert has taken it back.
pub(crate) fn is_shown(row: &SessionRow, seq: Seq) -> bool {
    row.revert.as_ref().is_none_or(|staged| seq < staged.from)
}
