//! A Revert: staged, which restores files; cleared, which undoes that; or committed, for good.
//!
//! This module decides about files, and the shell acts, between a write that announces the action and one that
//! confirms it. Both may be repeated: restoring the same files twice has the same effect as once.

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    Control, DrainEnd, ErrorCode, FileChange, InputCancelled, LeftFile, LeftReason, MessageId,
    RevertCleared, RevertCommitted, RevertPaths, RevertStaged, RevertStaging, RevertedTo, Seq,
    SessionError, SnapshotTree,
};
use history::{History, Reverting};

use crate::boundary::Next;
use crate::controls::deliver;
use crate::draft::{Draft, Verdict};
use crate::observed::Observation;
use crate::rules::Rules;
use crate::site::Site;

/// The action on files that a Revert needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilesPlan {
    /// Capture all of them; then call [`Rules::captured`].
    Capture,
    /// Restore them one after the other; then call [`Rules::restored`].
    Restore(Vec<PutBack>),
}

/// Files to restore from a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutBack {
    /// The tree.
    pub tree: SnapshotTree,
    /// The paths below the Location's directory; `None` for all.
    pub paths: Option<BTreeSet<String>>,
}

/// The changes by a restore.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoredFiles {
    /// At most 1,000 changes.
    pub files: Vec<FileChange>,
    /// The number of further changes.
    pub more: i64,
    /// Paths left alone, because somebody else has changed them meanwhile.
    pub left: Vec<String>,
}

/// The most files that are named as left alone.
const MAX_LEFT: usize = 100;

/// A Revert that can be staged.
struct Wanted {
    from: Seq,
    back: RevertedTo,
    target: Option<SnapshotTree>,
    paths: RevertPaths,
    /// The files that an earlier Revert restored, and the files before that.
    undone: RevertPaths,
    original: Option<SnapshotTree>,
}

impl Wanted {
    /// Checks a request for a Revert.
    ///
    /// # Errors
    /// `session.message_unknown` or `session.revert_across_move`.
    fn new(history: &History, message: &MessageId, files: bool) -> Result<Self, SessionError> {
        let to = history.savepoint(message).ok_or_else(|| SessionError {
            code: ErrorCode::SessionMessageUnknown.into(),
            message: "the session has no such message to go back to; list its messages, and choose a prompt or an \
                      answer"
                .into(),
        })?;
        if to.seq <= history.moved() {
            return Err(SessionError {
                code: ErrorCode::SessionRevertAcrossMove.into(),
                message: "the session has moved to another workspace since that message; fork it there instead"
                    .into(),
            });
        }
        let target = history.tree_before(to.seq).cloned();
        let paths = match history.changed_since(to.seq) {
            paths if files && target.is_some() => paths,
            RevertPaths::All | RevertPaths::Only(_) => RevertPaths::default(),
        };
        let (undone, original) = match history.revert() {
            Some(Reverting::Staged(staged)) => (staged.paths.clone(), staged.original.clone()),
            Some(Reverting::Staging(_)) | None => Default::default(),
        };
        let target = target.filter(|_| !paths.is_empty());
        Ok(Self { from: to.seq, back: to.back(), target, paths, undone, original })
    }

    fn is_about_files(&self) -> bool {
        !self.paths.is_empty() || !self.undone.is_empty()
    }
}

impl Rules<'_> {
    /// Acts on a control for a Revert to before `message`. Returns `None` if the control is settled.
    pub(crate) fn revert(
        &self,
        draft: &mut Draft<'_>,
        control: &MessageId,
        message: &MessageId,
        files: bool,
        continuing: bool,
    ) -> Option<Verdict<Next>> {
        let history = draft.history();
        let wanted = if continuing { Err(busy()) } else { Wanted::new(history, message, files) };
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(error) => {
                deliver(draft, control, Some(error));
                return None;
            }
        };
        match wanted.original.clone() {
            _ if !wanted.is_about_files() => {
                let skipped = if files { history.skipped_since(wanted.from) } else { Vec::new() };
                deliver(draft, control, None);
                draft.push(RevertStaged {
                    message: message.clone(),
                    from: wanted.from,
                    original: wanted.original,
                    paths: RevertPaths::default(),
                    files: Vec::new(),
                    more: 0,
                    left: left_files(skipped, Vec::new()),
                    back: wanted.back,
                });
                None
            }
            // Captured by the earlier Revert; the files have changed since.
            Some(original) => Some(stage(draft, control, message, wanted, original)),
            None => {
                let next = Next::Files(FilesPlan::Capture);
                Some(Verdict::Write(next, DrainEnd::Keep, Site::RevertReached))
            }
        }
    }

    /// Acts on a control to undo a Revert. Returns `None` if the control is settled.
    pub(crate) fn unrevert(
        &self,
        draft: &mut Draft<'_>,
        control: &MessageId,
        continuing: bool,
    ) -> Option<Verdict<Next>> {
        if continuing {
            deliver(draft, control, Some(busy()));
            return None;
        }
        let Some(Reverting::Staged(staged)) = draft.history().revert() else {
            deliver(draft, control, None);
            return None;
        };
        match staged.original.clone().filter(|_| !staged.paths.is_empty()) {
            Some(tree) => {
                let paths = selected(&staged.paths);
                let next = Next::Files(FilesPlan::Restore(vec![PutBack { tree, paths }]));
                Some(Verdict::Write(next, DrainEnd::Keep, Site::UnrevertReached))
            }
            None => {
                deliver(draft, control, None);
                draft.push(RevertCleared::default());
                None
            }
        }
    }

    /// Continues after the files before the Revert were captured, if the Revert is still next: restores files, or
    /// crosses the boundary.
    pub fn captured(
        &self,
        draft: &mut Draft<'_>,
        original: Result<SnapshotTree, SessionError>,
        observed: &Observation,
    ) -> Verdict<Next> {
        if let Some(control) = self.next_control(draft.history(), false)
            && let Control::Revert { message, files } = &control.control
        {
            match Wanted::new(draft.history(), message, *files).and_then(|w| Ok((w, original?))) {
                Ok((wanted, original)) if wanted.is_about_files() => {
                    return stage(draft, &control.message, message, wanted, original);
                }
                // The boundary settles it.
                Ok(_) => {}
                Err(error) => deliver(draft, &control.message, Some(error)),
            }
        }
        self.go_over(draft, false, observed)
    }

    /// Writes that the files are restored, or that this failed and they are as before, as far as possible.
    pub fn restored(
        &self,
        draft: &mut Draft<'_>,
        done: Result<RestoredFiles, SessionError>,
        observed: &Observation,
    ) -> Verdict<Next> {
        match (draft.history().revert().cloned(), done) {
            (Some(Reverting::Staging(staging)), Ok(RestoredFiles { files, more, left })) => {
                let RevertStaging { message, from, original, paths, back, .. } = &*staging;
                let left = left_files(draft.history().skipped_since(*from), left);
                draft.push(RevertStaged {
                    message: message.clone(),
                    from: *from,
                    original: Some(original.clone()),
                    paths: paths.clone(),
                    files,
                    more,
                    left,
                    back: back.clone(),
                });
            }
            (Some(Reverting::Staging(_)), Err(error)) => {
                draft.push(RevertCleared { error: Some(error) });
            }
            (Some(Reverting::Staged(_)), done) => {
                // Whatever came since, the files are the earlier ones.
                let history = draft.history();
                let asked = history.controls().iter();
                let asked = asked.filter(|control| control.control == Control::Unrevert);
                let asked = asked.map(|control| control.message.clone()).next();
                let error = done.err();
                let is_done = error.is_none();
                if let Some(message) = asked {
                    deliver(draft, &message, error);
                }
                if is_done {
                    draft.push(RevertCleared::default());
                }
            }
            (None, _) => {}
        }
        self.go_over(draft, false, observed)
    }

    /// Continues a restore that an earlier owner did not finish.
    pub(crate) fn resume_revert(&self, draft: &Draft<'_>) -> Option<Verdict<Next>> {
        match draft.history().revert()? {
            Reverting::Staging(staging) => {
                let next = Next::Files(FilesPlan::Restore(steps(staging)));
                Some(Verdict::Write(next, DrainEnd::Keep, Site::RevertResumed))
            }
            Reverting::Staged(_) => None,
        }
    }
}

/// Returns the files that a Revert leaves alone, each once and ordered by path. `skipped` are those whose content no
/// Workspace Snapshot has since the reverted turns; `changed` are those that somebody else has changed.
fn left_files(skipped: Vec<LeftFile>, changed: Vec<String>) -> Vec<LeftFile> {
    let changed = changed.into_iter().map(|path| (path, LeftReason::Changed));
    let skipped = skipped.into_iter().map(|file| (file.path, file.why));
    let all: BTreeMap<String, LeftReason> = changed.chain(skipped).collect();
    all.into_iter().take(MAX_LEFT).map(|(path, why)| LeftFile { path, why }).collect()
}

/// Announces the restore.
fn stage(
    draft: &mut Draft<'_>,
    control: &MessageId,
    message: &MessageId,
    wanted: Wanted,
    original: SnapshotTree,
) -> Verdict<Next> {
    let Wanted { from, back, target, paths, undone, .. } = wanted;
    let message = message.clone();
    let staging = RevertStaging { message, from, original, target, paths, undone, back };
    let steps = steps(&staging);
    deliver(draft, control, None);
    draft.push(staging);
    Verdict::Write(Next::Files(FilesPlan::Restore(steps)), DrainEnd::Keep, Site::RevertStaging)
}

/// Returns the restores: first those that undo an earlier Revert, then this one's.
fn steps(staging: &RevertStaging) -> Vec<PutBack> {
    let (paths, mut undone) = (selected(&staging.paths), selected(&staging.undone));
    if let (Some(undone), Some(paths)) = (&mut undone, &paths) {
        undone.retain(|path| !paths.contains(path));
    }
    let original = PutBack { tree: staging.original.clone(), paths: undone };
    let target = staging.target.clone().map(|tree| PutBack { tree, paths });
    let is_about_any = |step: &PutBack| step.paths.as_ref().is_none_or(|paths| !paths.is_empty());
    [Some(original), target].into_iter().flatten().filter(is_about_any).collect()
}

fn selected(paths: &RevertPaths) -> Option<BTreeSet<String>> {
    match paths {
        RevertPaths::All => None,
        RevertPaths::Only(paths) => Some(paths.iter().cloned().collect()),
    }
}

/// Makes a staged Revert final, because something comes after it. The synthetic input that it held was about work
/// that is gone.
pub(crate) fn commit_revert(draft: &mut Draft<'_>) {
    let Some(Reverting::Staged(staged)) = draft.history().revert().cloned() else { return };
    let held: Vec<MessageId> =
        draft.history().held().map(|input| input.prompt.message.clone()).collect();
    let (message, from, back) = (staged.message.clone(), staged.from, staged.back.clone());
    draft.push(RevertCommitted { message, from, back });
    if mutated!(HeldOutlivesRevert) {
        return;
    }
    for message in held {
        draft.push(InputCancelled { message });
        draft.taken();
    }
}

fn busy() -> SessionError {
    SessionError {
        code: ErrorCode::SessionBusy.into(),
        message: "the session is at work; interrupt it or wait for its end, then revert".into(),
    }
}
