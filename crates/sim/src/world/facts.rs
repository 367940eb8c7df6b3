//! Constants of all histories: sizes, times, settings.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use domain::{
    Control, ErrorCode, IdMint, LocationId, ModelRef, Need, OrgId, Permitted, ProjectId,
    RuleAction, SessionCreated, SessionError, SessionId, SessionRef, ToolClass, ToolRule,
};
use llm_protocol::{Dialect, Protocol, RawJson, ToolDefinition, retry::Schedule};
use session_rules::{
    Agent, Agents, CompactionSettings, FixedModels, ModelFacts, Models, ReadNeeds, RuleSettings,
    ToolFacts,
};

use crate::check::{MAX_BODIES, MAX_RECOVERIES, MAX_RETRIES, PROMOTION};
use crate::provider::{SECRET, TOOLS};

/// When virtual time begins, in Unix milliseconds.
pub(super) const EPOCH: i64 = 1_795_000_000_000;
/// Actions of one history, at most.
pub(super) const MAX_STEPS: u64 = 50_000;
pub(super) const WORKERS: usize = 3;
/// Locations that exist from the beginning.
pub(super) const LOCATIONS: usize = 2;
pub(super) const SESSIONS: usize = 3;
/// Forks, at most; each may have a Location of its own.
pub(super) const FORKS: usize = 2;
pub(super) const PLACES: usize = LOCATIONS + FORKS;
/// The interval of a worker's own sweeps, and of placement's.
pub(super) const SWEEP: i64 = 500;
/// How long a lease lasts after its last heartbeat.
pub(super) const LEASE: i64 = 2_000;
/// When faults stop.
pub(super) const QUIET: i64 = 9_000;
/// The time from there to the last prompt of each session: by then everything that ran has ended.
pub(super) const CALM: i64 = 20_000;
/// The time by which everything must be settled: the longest waits are for a provider, then for a lease.
pub(super) const SETTLED: i64 = QUIET + CALM + 45_000;
/// How long an answer to an ask is waited for.
const PATIENCE: u64 = 6_000;
/// Context entries of a session, at most.
pub(super) const ENTRIES: usize = 2;

/// Settings and names that all drains share.
pub(crate) struct Facts {
    pub(crate) settings: RuleSettings,
    pub(super) models: Models,
    /// The tools of each release. Two of them differ.
    pub(super) releases: [ToolFacts; 2],
    project: ProjectId,
    pub(super) locations: Vec<LocationId>,
    /// Each session, at each Location.
    pub(super) sessions: Vec<Vec<SessionRef>>,
    pub(super) missing: SessionError,
    /// Whether sessions have a rule that asks. Where Reverts are sought, sessions must come to rest instead.
    asks: bool,
}

impl Facts {
    pub(super) fn new(mint: &mut IdMint, asks: bool) -> Self {
        let locations: Vec<LocationId> = (0..PLACES).map(|_| LocationId::mint(mint)).collect();
        let session = |_| {
            let session = SessionId::mint(mint);
            let at = |location: &LocationId| SessionRef {
                org: OrgId::FIRST,
                location: location.clone(),
                session: session.clone(),
            };
            locations.iter().map(at).collect()
        };
        let sessions = (0..SESSIONS + FORKS).map(session).collect();
        let default = ModelRef::new("simulated", "simulated");
        let classes = [ToolClass::Pure, ToolClass::Keyed, ToolClass::Probe, ToolClass::Unsafe];
        let definition = |name: &str, how: &str| ToolDefinition {
            name: name.to_owned(),
            description: format!("Does {name}{how}."),
            input_schema: RawJson::parse("{\"type\":\"object\"}".to_owned()).expect("JSON"),
        };
        let release = |how: [&str; TOOLS.len()]| ToolFacts {
            needs: ReadNeeds(needs),
            definitions: TOOLS.iter().zip(how).map(|(tool, how)| definition(tool, how)).collect(),
            classes: TOOLS.iter().map(|tool| (*tool).to_owned()).zip(classes).collect(),
        };
        Self {
            settings: settings(),
            models: Models {
                source: Arc::new(
                    FixedModels::default()
                        .with_provider(&default.provider, Protocol::OpenAiChat, Dialect::default())
                        .with_facts(default.clone(), limits()),
                ),
                default,
            },
            releases: [
                release([""; TOOLS.len()]),
                release(["", "", " in another way", " in another way"]),
            ],
            project: ProjectId::mint(mint),
            sessions,
            locations,
            missing: SessionError {
                code: ErrorCode::WorkspaceUnavailable.into(),
                message: "the files are elsewhere".into(),
            },
            asks,
        }
    }

    /// The first event of a session: two have no title, and the last is a child of the first.
    pub(super) fn begun(&self, session: usize) -> SessionCreated {
        let last = session == SESSIONS - 1;
        let parent = last.then(|| self.sessions[0][0].session.clone());
        self.created(session % LOCATIONS, false, parent)
    }

    /// The first event of a session at a Location.
    pub(super) fn created(
        &self,
        location: usize,
        named: bool,
        parent: Option<SessionId>,
    ) -> SessionCreated {
        SessionCreated {
            by: None,
            project: self.project.clone(),
            location: self.locations[location].clone(),
            directory: "/workspace".into(),
            title: "New session".into(),
            agent: "build".into(),
            model: None,
            parent,
            named,
            rules: self.asks.then(asking).into_iter().collect(),
            metadata: None,
        }
    }

    /// A Move to another Location.
    pub(super) fn to_move(&self, location: usize, carry: bool) -> Control {
        Control::Move {
            project: self.project.clone(),
            location: self.locations[location].clone(),
            directory: "/workspace".into(),
            carry,
        }
    }

    /// The most tokens of a request.
    pub(super) fn context_limit(&self) -> usize {
        let limit = limits().context_limit.unwrap_or(0);
        usize::try_from(limit).unwrap_or(usize::MAX)
    }
}

/// Reads the need of a call: it is about the texts among its arguments.
fn needs(tool: &str, arguments: &str, _: &str) -> Vec<Need> {
    let given = serde_json::from_str::<BTreeMap<String, serde_json::Value>>(arguments);
    let texts =
        given.into_iter().flatten().filter_map(|(_, value)| value.as_str().map(str::to_owned));
    vec![Need { resources: texts.collect(), ..Need::whole(tool) }]
}

/// Returns the rule about the calls that somebody is asked about.
fn asking() -> ToolRule {
    ToolRule { permission: "*".into(), pattern: SECRET.into(), action: RuleAction::Ask }
}

/// A model so small that conversations of a few seconds come to its limits.
fn limits() -> ModelFacts {
    ModelFacts {
        context_limit: Some(2_000),
        input_limit: Some(1_900),
        output_limit: Some(200),
        notice: Some("it is no model".into()),
        ..ModelFacts::default()
    }
}

fn settings() -> RuleSettings {
    RuleSettings {
        agents: Agents::of(Agent {
            name: "build".into(),
            description: "Works.".into(),
            instructions: "You work.".into(),
            tools: Permitted::All,
            skills: Permitted::All,
            steps: None,
        }),
        permissions: RuleSettings::default().permissions,
        notices: RuleSettings::default().notices,
        max_steps: 5,
        retry: Schedule {
            base: Duration::from_millis(40),
            max_retries: MAX_RETRIES,
            max_paid_retries: MAX_RETRIES,
            max_retry_after: Duration::from_millis(400),
        },
        max_recoveries: MAX_RECOVERIES,
        max_bodies: MAX_BODIES,
        compaction: CompactionSettings { buffer: 300, keep: 60, ..CompactionSettings::default() },
        promotion: PROMOTION,
        titles: true,
        provider_state: true,
        asks: Some(Duration::from_millis(PATIENCE)),
    }
}
