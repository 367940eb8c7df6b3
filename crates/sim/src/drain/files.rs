//! A drain's work on files: captures beside the next provider call, writes that wait for them, Reverts, Moves.

use domain::{
    ErrorCode, RevertPaths, SessionError, SnapshotTree, ToolClass, TurnId, WorkspaceSnapshotted,
};
use history::Reverting;
use session_rules::{FilesPlan, MovePlan, PutBack, RestoredFiles};

use super::decide::Op;
use super::{Drain, Flow, Phase};
use crate::fault::Fault;
use crate::mutant::ShellMutant;
use crate::world::{Capture, Taken, World};

/// How long calls that may change files, and a drain's end, wait for a capture.
const SNAPSHOT_WAIT: i64 = 400;
/// The same, of a drain that is interrupted.
const HURRY: i64 = 80;

/// The capture that is under way, and the result of the last one.
#[derive(Default)]
pub(super) struct FileSlot {
    running: Option<Capture>,
    pub(super) done: Option<Taken>,
    failed: bool,
    /// The files in the last capture.
    tree: Option<SnapshotTree>,
    /// The end of the wait for it.
    until: Option<i64>,
}

/// The purpose for which files are captured or put back.
pub(super) enum Wanted {
    /// A write that would end the drain.
    Write(Op),
    /// A Revert's original.
    Original { asked: bool },
    /// A Move that takes them along.
    Carry { plan: MovePlan, asked: bool },
    /// A Revert that puts them back.
    PutBack { steps: Vec<PutBack>, done: Option<bool> },
}

impl FileSlot {
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The time when the capture or the wait for it ends.
    pub(super) fn next(&self) -> Option<i64> {
        let ends = self.running.as_ref()?.ends_at;
        Some(self.until.map_or(ends, |until| until.min(ends)))
    }

    /// Begins to wait for the capture.
    pub(super) fn hold(&mut self, now: i64) {
        if self.running.is_some() {
            self.until.get_or_insert(now + SNAPSHOT_WAIT);
        }
    }
}

fn failed() -> SessionError {
    SessionError {
        code: ErrorCode::WorkspaceSnapshotFailed.into(),
        message: "the files could not be captured or put back".into(),
    }
}

impl Drain {
    /// Begins a capture. `turn`: the turn whose calls are the reason.
    fn begin_capture(&mut self, turn: Option<TurnId>, world: &mut World) {
        if !self.has_files {
            return;
        }
        let running = Some(world.capture(self.at, self.token, turn));
        self.files = FileSlot { running, ..FileSlot::default() };
    }

    /// A call that may change files has come. Captures the files before it, unless a capture has been made under this
    /// token.
    pub(super) fn before_changes(&mut self, world: &mut World) {
        let idle = !self.files.is_running() && self.files.done.is_none();
        if idle && self.may_change_files(world) && world.wants_base(self.at, self.token) {
            // This capture has the changes that no earlier one has, so it belongs to the turn that made them.
            let owed = self.history.changing_turn().cloned();
            self.begin_capture(owed, world);
        }
    }

    /// The turn's calls have ended.
    pub(super) fn after_changes(&mut self, world: &mut World) {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.touched) else { return };
        turn.touched = false;
        let id = turn.said.turn.clone();
        self.begin_capture(Some(id), world);
    }

    /// The same, with the changes of earlier calls that no capture has.
    pub(super) fn capture_after(&mut self, world: &mut World) {
        self.after_changes(world);
        if !self.files.is_running() && self.files.done.is_none() {
            self.capture_what_is_left(world);
        }
    }

    /// Calls that are settled may have changed files, and no capture says that it has them.
    pub(super) fn capture_what_is_left(&mut self, world: &mut World) {
        let Some(unsaved) = self.history.unsaved().last() else { return };
        let turn = unsaved.turn.clone();
        self.begin_capture(Some(turn), world);
    }

    /// Returns the row of a capture for the next write. A row that says "as before" is written only if some call still
    /// waits for one.
    pub(super) fn captured(&self) -> Option<&WorkspaceSnapshotted> {
        let done = self.files.done.as_ref()?;
        (!done.as_before || !self.history.unsaved().is_empty()).then_some(&done.row)
    }

    /// Whether calls whose intents wait may change files.
    pub(super) fn may_change_files(&self, world: &World) -> bool {
        let Some(turn) = &self.turn else { return false };
        let class = |tool: &str| world.class(tool);
        turn.said.unintended.iter().any(|intent| class(&intent.tool) != ToolClass::Pure)
    }

    /// Returns whether the intents that wait also wait for the capture.
    pub(super) fn waits_for_capture(&mut self, world: &World) -> bool {
        let waits = self.files.is_running()
            && self.may_change_files(world)
            && !world.is(ShellMutant::BatchDoesNotWait);
        if waits {
            self.files.hold(world.now);
        }
        waits
    }

    /// Takes in a capture that has ended, or whose wait has ended.
    pub(super) fn advance_files(&mut self, world: &mut World) {
        let now = world.now;
        let early = world.is(ShellMutant::RowBeforePack);
        let Some(running) = self.files.running.take() else { return };
        if running.ends_at <= now {
            let (tree, row) = (Some(running.tree.clone()), running.taken().row.clone());
            let mut done = world.captured(self.at, running);
            let failed = done.is_none();
            if failed {
                world.goes_on_uncaptured(self.whose());
            }
            if failed && world.is(ShellMutant::FailureIsAsBefore) {
                done = world.as_before(self.at, row);
            }
            self.files = FileSlot { done, failed, tree, ..FileSlot::default() };
        } else if self.files.until.is_some_and(|until| until <= now) {
            world.faults.note(Fault::SnapshotOverdue);
            world.goes_on_uncaptured(self.whose());
            self.files = FileSlot { failed: true, ..FileSlot::default() };
        } else {
            if early {
                self.files.done = Some(running.taken().clone());
            }
            self.files.running = Some(running);
        }
    }

    /// Captures files or puts them back, once the present capture has ended.
    pub(super) fn files(&mut self, mut wanted: Wanted, world: &mut World) -> Flow {
        if self.is_interrupted(world) {
            let soon = world.now + HURRY;
            self.files.until = Some(self.files.until.map_or(soon, |until| until.min(soon)));
        }
        self.files.hold(world.now);
        self.advance_files(world);
        if self.files.is_running() {
            self.phase = Phase::Files(wanted);
            return Flow::Poll(self.files.next().unwrap_or(world.now + 1).min(world.now + 250));
        }
        match &mut wanted {
            Wanted::Write(_) => {}
            Wanted::Original { asked } | Wanted::Carry { asked, .. } if !*asked => {
                *asked = true;
                self.begin_capture(None, world);
                return self.enter(Phase::Files(wanted), world);
            }
            Wanted::PutBack { steps, done } if done.is_none() => {
                *done = Some(world.put_back(self.at, steps));
                self.begin_capture(None, world);
                return self.enter(Phase::Files(wanted), world);
            }
            Wanted::Original { .. } | Wanted::Carry { .. } | Wanted::PutBack { .. } => {}
        }
        let tree = self.files.tree.clone().filter(|_| !self.files.failed).ok_or_else(failed);
        let observed = self.observe(world);
        let op = match wanted {
            Wanted::Write(op) => op,
            Wanted::Original { .. } => Op::Captured(tree, observed),
            Wanted::Carry { plan, .. } => Op::Moved(plan, tree.map(Some), observed),
            Wanted::PutBack { done, .. } => {
                let told = if done == Some(true) { Ok(self.told(world)) } else { Err(failed()) };
                Op::Restored(told, observed)
            }
        };
        self.write(op, world)
    }

    /// Returns the files that a Revert has put back.
    fn told(&self, world: &World) -> RestoredFiles {
        let Some(Reverting::Staging(staging)) = self.history.revert() else {
            return RestoredFiles::default();
        };
        let Some(target) = &staging.target else { return RestoredFiles::default() };
        let mut files = world.diff(&staging.original, target);
        if let RevertPaths::Only(paths) = &staging.paths {
            files.retain(|file| paths.contains(&file.path));
        }
        RestoredFiles { files, more: 0, left: Vec::new() }
    }

    pub(super) fn revert_files(&mut self, plan: FilesPlan, world: &World) -> Flow {
        let wanted = match plan {
            FilesPlan::Capture => Wanted::Original { asked: false },
            FilesPlan::Restore(steps) => Wanted::PutBack { steps, done: None },
        };
        self.enter(Phase::Files(wanted), world)
    }

    pub(super) fn move_on(&mut self, plan: MovePlan, world: &mut World) -> Flow {
        if plan.carry {
            return self.enter(Phase::Files(Wanted::Carry { plan, asked: false }), world);
        }
        let observed = self.observe(world);
        self.write(Op::Moved(plan, Ok::<Option<SnapshotTree>, _>(None), observed), world)
    }

    /// Delays a write that would end the drain until a capture has the changes of its turn's calls.
    pub(super) fn capture_before(&mut self, op: Op, world: &mut World) -> Flow {
        let touched = self.turn.as_ref().is_some_and(|turn| turn.touched);
        let results = self.turn.as_ref().is_some_and(|turn| !turn.said.done.is_empty());
        if touched && results {
            self.resume = Some(Phase::Ending(op));
            return self.write(Op::Results, world);
        }
        self.after_changes(world);
        self.enter(Phase::Files(Wanted::Write(op)), world)
    }
}
