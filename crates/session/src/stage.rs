use domain::Seq;
use domain::SessionRef;
use session_rules::{RuleSettings, Rules, ToolFacts, WorkspaceState};

use crate::control::DrainControl;
use crate::runtime::Runtime;
use crate::toolbox::Toolbox;
use crate::workspace::{Restored, Workspace};

/// Where a drain acts: what its decisions are made of besides its log, and the hands that carry them out.
pub(crate) struct Stage<'r> {
    pub(crate) runtime: &'r Runtime,
    pub(crate) session: &'r SessionRef,
    pub(crate) workspace: &'r Workspace,
    pub(crate) toolbox: Toolbox<'r>,
    pub(crate) control: DrainControl,
    /// The newest interrupt that is not this drain's to apply.
    pub(crate) interrupts_before: Seq,
    tools: ToolFacts,
}

impl<'r> Stage<'r> {
    pub(crate) fn new(
        runtime: &'r Runtime,
        session: &'r SessionRef,
        workspace: &'r Workspace,
        control: DrainControl,
    ) -> Self {
        let toolbox = Toolbox::new(runtime, session, workspace);
        let tools = toolbox.facts();
        Self { runtime, session, workspace, toolbox, control, interrupts_before: Seq(0), tools }
    }

    /// What decisions are made of now.
    pub(crate) fn rules(&self) -> Rules<'_> {
        let settings: &RuleSettings = &self.runtime.settings.rules;
        Rules {
            settings,
            models: self.runtime.models.rules(),
            tools: &self.tools,
            session: self.session,
            workspace: match (self.workspace.unavailable(), self.workspace.made_anew()) {
                (Some(error), _) => WorkspaceState::Missing(error),
                (None, Some(Restored { token, tree })) => {
                    WorkspaceState::Restored { token: *token, tree: tree.as_ref() }
                }
                (None, None) => WorkspaceState::Here,
            },
            stopping: self.control.stopping.is_cancelled(),
            crowded: self.control.is_crowded(),
            interrupts_before: self.interrupts_before,
        }
    }
}
