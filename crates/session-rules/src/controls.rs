//! Controls at their place in the inbox, handled before context, files or a model are looked at.

use domain::{
    Control, ControlDelivered, DrainEnd, DrainEnded, DrainOutcome, MessageId, SessionError,
    SessionMoved, SnapshotTree,
};
use history::{History, PendingControl};

use crate::begin::begin_compaction;
use crate::boundary::Next;
use crate::draft::{Draft, Verdict};
use crate::inbox::{Head, head};
use crate::observed::Observation;
use crate::revert::commit_revert;
use crate::rules::{Rules, WorkspaceState};
use crate::site::Site;
use crate::title::lose_title;

/// A Move that a boundary has reached. Its write is separate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MovePlan {
    /// Whether the model must answer results, at the new Location.
    pub continuing: bool,
    /// Whether the files are captured first and copied.
    pub carry: bool,
}

impl Rules<'_> {
    /// Acts on a control at the head of the inbox. Returns `None` if it is settled.
    pub(crate) fn act(
        &self,
        draft: &mut Draft<'_>,
        control: &PendingControl,
        continuing: bool,
        observed: &Observation,
    ) -> Option<Verdict<Next>> {
        match &control.control {
            Control::Compaction => {
                self.compact(draft, control, continuing, observed).map(begin_compaction)
            }
            Control::Move { location, .. } if *location == self.session.location => {
                deliver(draft, &control.message, None);
                None
            }
            Control::Move { carry, .. } => {
                let next = Next::Move(MovePlan { continuing, carry: *carry });
                Some(Verdict::Write(next, DrainEnd::Keep, Site::MoveReached))
            }
            Control::Revert { message, files } => {
                self.revert(draft, &control.message, message, *files, continuing)
            }
            Control::Unrevert => self.unrevert(draft, &control.message, continuing),
        }
    }

    /// Moves the session if the Move is still next; otherwise continues here. `carried` has the files if they are
    /// copied; `None` if there are none.
    pub fn moved(
        &self,
        draft: &mut Draft<'_>,
        plan: MovePlan,
        carried: Result<Option<SnapshotTree>, SessionError>,
        observed: &Observation,
    ) -> Verdict<Next> {
        let MovePlan { continuing, carry: captured } = plan;
        let next = self.next_control(draft.history(), continuing);
        let Some(PendingControl { message, control, .. }) = next else {
            return self.go_over(draft, continuing, observed);
        };
        let Control::Move { project, location, directory, carry } = control else {
            return self.go_over(draft, continuing, observed);
        };
        let tree = match carried {
            Ok(tree) if captured == carry => tree,
            // A different Move from the prepared one.
            Ok(_) => return self.go_over(draft, continuing, observed),
            Err(error) => {
                deliver(draft, &message, Some(error));
                return self.go_over(draft, continuing, observed);
            }
        };
        lose_title(draft);
        commit_revert(draft);
        deliver(draft, &message, None);
        let to = location.clone();
        draft.push(SessionMoved {
            from: self.session.location.clone(),
            to: location,
            project,
            directory,
            carry,
            tree,
        });
        let ends = if continuing {
            DrainEnd::MovedOpen
        } else {
            draft.push(DrainEnded { outcome: DrainOutcome::Completed, error: None });
            DrainEnd::Moved
        };
        Verdict::Write(Next::Moved(to), ends, Site::Moved)
    }

    /// Returns whether a Move to another Location is next: the only step that a drain can take without its files.
    pub(crate) fn leaves(&self, history: &History, continuing: bool) -> bool {
        let control = self.next_control(history, continuing).map(|next| next.control);
        matches!(control, Some(Control::Move { location, .. }) if location != self.session.location)
    }

    /// Returns the control that a boundary would now act on.
    pub(crate) fn next_control(
        &self,
        history: &History,
        continuing: bool,
    ) -> Option<PendingControl> {
        match head(history, continuing, self.settings.promotion) {
            Head::Control(control) if !self.stopping && !self.is_interrupted(history) => {
                Some(control)
            }
            Head::Control(_) | Head::Prompts(_) | Head::Nothing => None,
        }
    }

    /// Crosses the boundary, unless the files to continue with are missing.
    pub(crate) fn go_over(
        &self,
        draft: &mut Draft<'_>,
        continuing: bool,
        observed: &Observation,
    ) -> Verdict<Next> {
        match self.workspace {
            WorkspaceState::Missing(error) if !self.leaves(draft.history(), continuing) => {
                self.give_up(draft, error.clone())
            }
            WorkspaceState::Missing(_) | WorkspaceState::Here | WorkspaceState::Restored { .. } => {
                self.cross(draft, continuing, observed)
            }
        }
    }
}

/// Takes a control out of the inbox. `error` is the reason why it could not be acted on.
pub(crate) fn deliver(draft: &mut Draft<'_>, message: &MessageId, error: Option<SessionError>) {
    draft.push(ControlDelivered { message: message.clone(), error });
    if !mutated!(ControlNotCounted) {
        draft.taken();
    }
}
