use domain::{Seq, SessionRef};
use history::History;

use crate::control::DrainControl;
use crate::runtime::Runtime;
use crate::toolbox::Toolbox;
use crate::workspace::Workspace;

/// What a drain's decisions are made of besides its log. Nothing here changes while one is made, so that it
/// can be made again when the log has grown meanwhile.
pub(crate) struct Stage<'r> {
    pub(crate) runtime: &'r Runtime,
    pub(crate) session: &'r SessionRef,
    pub(crate) workspace: &'r Workspace,
    pub(crate) toolbox: Toolbox<'r>,
    pub(crate) control: DrainControl,
    /// The newest interrupt that is not this drain's to apply.
    pub(crate) interrupts_before: Seq,
}

impl<'r> Stage<'r> {
    pub(crate) fn new(
        runtime: &'r Runtime,
        session: &'r SessionRef,
        workspace: &'r Workspace,
        control: DrainControl,
    ) -> Self {
        let toolbox = Toolbox::new(runtime, session, workspace);
        Self { runtime, session, workspace, toolbox, control, interrupts_before: Seq(0) }
    }

    /// Whether `history` holds an interrupt that this drain must apply.
    pub(crate) fn is_interrupted(&self, history: &History) -> bool {
        history.interrupt().is_some_and(|seq| seq > self.interrupts_before)
    }
}
