//! The tools of a Location, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use domain::ToolClass;
use egress::Egress;
use sandbox::Sandbox;

use crate::call::{Probe, Stopped, ToolCall, ToolContext, ToolDefinition, ToolOutcome};
use crate::replace::FileLocks;

/// One tool.
#[async_trait]
pub(crate) trait Tool: Send + Sync {
    fn definition(&self) -> ToolDefinition;
    fn class(&self) -> ToolClass;
    async fn run(&self, call: &ToolCall, context: &ToolContext) -> Result<ToolOutcome, Stopped>;
    /// Looks for the effect of a call that had started. Called only for class *probe*.
    async fn probe(&self, _call: &ToolCall, _context: &ToolContext) -> Probe {
        Probe::Unclear
    }
}

/// The tools that a worker offers. Cheap to clone.
#[derive(Clone)]
pub struct Registry {
    tools: Arc<BTreeMap<&'static str, Box<dyn Tool>>>,
}

impl Registry {
    /// Makes `edit`, `glob`, `grep`, `read`, `shell`, `skill` and `write`; commands run in `sandbox`.
    pub fn standard(sandbox: Arc<dyn Sandbox>) -> Self {
        Self::of(standard(sandbox, &Arc::default()))
    }

    /// Makes those of [`Registry::standard`], and `apply_patch`, `question`, `todoread`, `todowrite` and `webfetch`.
    /// Pages are fetched through `egress`.
    pub fn with_web(sandbox: Arc<dyn Sandbox>, egress: &Egress) -> Self {
        let locks = Arc::default();
        let mut tools = standard(sandbox, &locks);
        tools.push(Box::new(crate::apply_patch::ApplyPatch { locks }));
        tools.push(Box::new(crate::question::AskUser));
        tools.push(Box::new(crate::todo::TodoRead));
        tools.push(Box::new(crate::todo::TodoWrite));
        tools.push(Box::new(crate::webfetch::WebFetch { transport: egress.for_organisations() }));
        Self::of(tools)
    }

    fn of(tools: Vec<Box<dyn Tool>>) -> Self {
        let tools = tools.into_iter().map(|tool| (tool.definition().name, tool)).collect();
        Self { tools: Arc::new(tools) }
    }

    /// Returns the definitions for providers, always in the same order: by name.
    pub fn definitions(&self) -> Vec<ToolDefinition> {
        self.tools.values().map(|tool| tool.definition()).collect()
    }

    /// Returns what a takeover may do with a started call. An unknown tool has no body, so it is *pure*.
    pub fn class(&self, name: &str) -> ToolClass {
        self.tools.get(name).map_or(ToolClass::Pure, |tool| tool.class())
    }

    /// Runs a call to its outcome. It never fails: errors become outcomes that the model sees.
    ///
    /// If the future is dropped, commands die. A file change that had begun may still happen, in full.
    pub async fn run(&self, call: &ToolCall, context: &ToolContext) -> ToolOutcome {
        let Some(tool) = self.tools.get(call.name.as_str()) else {
            let known = self.tools.keys().copied().collect::<Vec<_>>().join(", ");
            let message = format!("there is no tool {}; the tools are {known}", call.name);
            return Stopped::because(message).into_outcome(&call.name);
        };
        if context.cancel.is_cancelled() {
            return Stopped::Interrupted.into_outcome(&call.name);
        }
        tool.run(call, context).await.unwrap_or_else(|stopped| stopped.into_outcome(&call.name))
    }

    /// Looks for the effect of a call that an earlier owner had started.
    pub async fn probe(&self, call: &ToolCall, context: &ToolContext) -> Probe {
        match self.tools.get(call.name.as_str()) {
            Some(tool) if tool.class() == ToolClass::Probe => tool.probe(call, context).await,
            Some(_) => Probe::Unclear,
            None => Probe::NotDone,
        }
    }
}

fn standard(sandbox: Arc<dyn Sandbox>, locks: &Arc<FileLocks>) -> Vec<Box<dyn Tool>> {
    vec![
        Box::new(crate::edit::Edit { locks: locks.clone() }),
        Box::new(crate::glob::Glob),
        Box::new(crate::grep::Grep),
        Box::new(crate::read::Read),
        Box::new(crate::shell::Shell { sandbox }),
        Box::new(crate::skill::Skill),
        Box::new(crate::write::Write { locks: locks.clone() }),
    ]
}
