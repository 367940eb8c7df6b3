use std::borrow::Cow;
use std::sync::Arc;

use domain::{
    ComponentList, Feature, FeatureLevel, FencingToken, SavedPermission, Seq, SessionRef,
};
use history::{History, TOOLS};
use llm_protocol::ToolDefinition;
use session_rules::{
    ChangedTools, CompactionSettings, Observation, RuleSettings, Rules, ToolFacts, WorkspaceState,
};
use settings::Effective;
use store::StoreError;

use crate::control::DrainControl;
use crate::observe::{ObservedAt, observe};
use crate::providers::OrgModels;
use crate::runtime::Runtime;
use crate::toolbox::Toolbox;
use crate::workspace::Workspace;

/// The surroundings of a drain: the facts that its decisions use besides its log, and the means to carry them out.
pub(crate) struct Stage<'r> {
    pub(crate) runtime: &'r Runtime,
    pub(crate) session: &'r SessionRef,
    pub(crate) workspace: &'r Workspace,
    pub(crate) toolbox: Toolbox<'r>,
    pub(crate) control: DrainControl,
    /// The token under which this worker has the Location.
    pub(crate) token: FencingToken,
    /// The newest interrupt that this drain must not apply.
    pub(crate) interrupts_before: Seq,
    /// The callable models at the time of the last look at the context.
    pub(crate) models: Arc<OrgModels>,
    /// The saved permissions of the session's project, once somebody has looked.
    pub(crate) saved: Vec<SavedPermission>,
    tools: &'r ToolFacts,
    changed: Option<ChangedTools>,
    settings: Cow<'r, RuleSettings>,
    /// The level that every running build can read.
    level: FeatureLevel,
}

impl<'r> Stage<'r> {
    pub(crate) fn new(
        runtime: &'r Runtime,
        session: &'r SessionRef,
        workspace: &'r Workspace,
        token: FencingToken,
        control: DrainControl,
        level: FeatureLevel,
        models: Arc<OrgModels>,
    ) -> Self {
        let toolbox = Toolbox::new(runtime, session, workspace);
        let tools = toolbox.facts();
        let rules = &runtime.settings.rules;
        let settings = if level.has_all() {
            Cow::Borrowed(rules)
        } else {
            Cow::Owned(readable_at(level, rules))
        };
        let interrupts_before = Seq(0);
        Self {
            runtime,
            session,
            workspace,
            toolbox,
            control,
            token,
            interrupts_before,
            models,
            saved: Vec::new(),
            tools,
            changed: None,
            settings,
            level,
        }
    }

    /// Reads the stored settings of the Location, if they were not read moments ago.
    pub(crate) async fn read_settings(&self) -> Result<(), StoreError> {
        let at = self.session.location_ref();
        self.workspace.settings().read(self.runtime, &at).await
    }

    /// Compares the Location's tools with those that the open turn of `history` was offered, if calls of it have no result.
    /// Tools that are not known any more count as changed.
    pub(crate) async fn compare_tools(&mut self, history: &History) -> Result<(), StoreError> {
        let Some(open) = history.open_turn().filter(|open| !open.is_settled()) else {
            return Ok(());
        };
        if self.changed.as_ref().is_some_and(|changed| changed.turn == open.turn) {
            return Ok(());
        }
        let offered = match self.offered(open.components.as_ref()).await {
            Err(StoreError::NotFound) => Vec::new(),
            offered => offered?,
        };
        self.changed = Some(self.tools.since(open.turn.clone(), &offered));
        Ok(())
    }

    /// Reads the tools that a request has offered.
    async fn offered(
        &self,
        list: Option<&ComponentList>,
    ) -> Result<Vec<ToolDefinition>, StoreError> {
        let (org, store) = (self.session.org, &self.runtime.store);
        let unreadable = |error: serde_json::Error| StoreError::Unreadable(error.to_string());
        let names = match list {
            Some(ComponentList::Inline(names)) => names.clone(),
            Some(ComponentList::Stored(hash)) => {
                let list = store.component(org, hash).await?;
                serde_json::from_slice(&list).map_err(unreadable)?
            }
            None => return Err(StoreError::NotFound),
        };
        let hash: &String = names.get(TOOLS).ok_or(StoreError::NotFound)?;
        serde_json::from_slice(&store.component(org, hash).await?).map_err(unreadable)
    }

    /// Lets the Location's settings count: agents, permission rules and bounds, for the whole drain.
    pub(crate) fn settle_settings(&mut self) {
        let settings = self.workspace.settings().effective();
        // Where nobody has set anything, the service's own stay as they are.
        if settings.hash != Effective::built_in().hash || !settings.notices.is_empty() {
            let under = self.runtime.settings.rules.under(&settings);
            self.settings = Cow::Owned(readable_at(self.level, &under));
        }
    }

    /// Reads the Context Sources, and publishes the project's settings if they have changed.
    pub(crate) async fn look_at(&self, at: ObservedAt) -> Observation {
        let Self { runtime, session, workspace, token, .. } = self;
        let now = runtime.clock.now_ms();
        let (observed, stop) = tokio::join!(
            observe(at.clone(), workspace),
            runtime.spending.stop(&runtime.store, session.org, now)
        );
        let (settings, found) = (workspace.settings(), at.settings().await);
        settings.looked(runtime, &session.location_ref(), *token, found).await;
        observed.with_stop(stop)
    }

    /// Returns the current facts for decisions.
    pub(crate) fn rules(&self) -> Rules<'_> {
        Rules {
            settings: &self.settings,
            models: self.models.rules(),
            tools: self.tools,
            changed: self.changed.as_ref(),
            saved: &self.saved,
            session: self.session,
            workspace: match (self.workspace.unavailable(), self.workspace.made_anew()) {
                (Some(error), _) => WorkspaceState::Missing(error),
                (None, Some((token, tree))) if self.level.has(Feature::Controls) => {
                    WorkspaceState::Restored { token, tree }
                }
                (None, _) => WorkspaceState::Here,
            },
            stopping: self.control.stopping.is_cancelled(),
            crowded: self.control.is_crowded(),
            cramped: false, // each write asks
            interrupts_before: self.interrupts_before,
        }
    }
}

/// These settings without what writes events that a running build could not read.
fn readable_at(level: FeatureLevel, rules: &RuleSettings) -> RuleSettings {
    let (controls, state) = (level.has(Feature::Controls), level.has(Feature::ProviderState));
    RuleSettings {
        titles: rules.titles && controls,
        provider_state: rules.provider_state && state,
        asks: rules.asks.filter(|_| level.has(Feature::Asks)),
        compaction: CompactionSettings {
            auto: rules.compaction.auto && controls,
            ..rules.compaction
        },
        ..rules.clone()
    }
}
