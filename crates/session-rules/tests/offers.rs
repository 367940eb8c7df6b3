//! The offers and options of a request beside the conversation, for its model and provider.

use std::sync::Arc;

use context::SystemContext;
use domain::{
    Delivery, IdMint, MessageId, ModelRef, OrgId, PartId, PromptAdmitted, PromptPart, Seq,
    SessionCreated, SessionError, SessionEvent, SessionRef, Stamp, Taken, ToolClass,
};
use history::History;
use llm_protocol::{Dialect, Protocol, RawJson, ToolDefinition};
use serde_json::Value;
use session_rules::{
    Draft, FixedModels, ModelSource, Models, Next, Observation, ReadNeeds, ResolvedModel,
    RuleSettings, Rules, ToolFacts, Verdict, WorkspaceState,
};

/// Models that may call no tools.
#[derive(Debug)]
struct Plain {
    models: FixedModels,
    takes_tools: bool,
}

impl ModelSource for Plain {
    fn resolve(&self, choice: &ModelRef) -> Result<ResolvedModel, SessionError> {
        let model = self.models.resolve(choice)?;
        Ok(ResolvedModel { takes_tools: self.takes_tools, ..model })
    }
}

/// Returns the body of a session's first request to a provider of this dialect.
fn body(dialect: Dialect, takes_tools: bool) -> Value {
    let mut history = History::new();
    let mut mint = IdMint::seeded(Stamp::default(), 1, 3);
    let session = SessionRef {
        org: OrgId::FIRST,
        location: "loc_a".parse().expect("an id"),
        session: "ses_1".parse().expect("an id"),
    };
    let created = SessionCreated {
        by: None,
        project: "prj_1".parse().expect("an id"),
        location: session.location.clone(),
        directory: "/workspace".into(),
        title: "t".into(),
        agent: "build".into(),
        model: None,
        parent: None,
        named: true,
        rules: Vec::new(),
        metadata: None,
    };
    let prompt = PromptAdmitted {
        by: None,
        message: MessageId::mint(&mut mint),
        delivery: Delivery::Steer,
        parts: vec![PromptPart::Text { id: PartId::mint(&mut mint), text: "hi".into() }],
        agent: None,
        model: None,
        wake: true,
        digest: String::new(),
        synthetic: None,
    };
    history.apply(Seq(1), 1, &SessionEvent::from(created));
    history.apply(Seq(2), 1, &SessionEvent::from(prompt));
    let settings = RuleSettings { titles: false, ..RuleSettings::default() };
    let models = FixedModels::default().with_provider("p", Protocol::OpenAiChat, dialect);
    let source = Arc::new(Plain { models, takes_tools });
    let models = Models { default: ModelRef::new("p", "m"), source };
    let definition = ToolDefinition {
        name: "shell".into(),
        description: "Runs a command.".into(),
        input_schema: RawJson::parse(r#"{"type":"object"}"#).expect("JSON"),
    };
    let tools = ToolFacts {
        needs: ReadNeeds::default(),
        classes: [("shell".to_owned(), ToolClass::Unsafe)].into(),
        definitions: vec![definition],
    };
    let rules = Rules {
        settings: &settings,
        models: &models,
        tools: &tools,
        changed: None,
        saved: &[],
        session: &session,
        workspace: WorkspaceState::Here,
        stopping: false,
        crowded: false,
        cramped: false,
        interrupts_before: Seq(0),
    };
    let idle = Taken { was_open: false, handed_over: false, recoveries: 0 };
    let seen = Observation::new(SystemContext::combine([]), Arc::default());
    let mut draft = Draft::new(&mut history, mint, 1);
    let Verdict::Write(Next::Turn(plan), ..) = rules.open(&mut draft, idle, &seen) else {
        panic!("a prompt begins a turn");
    };
    serde_json::from_slice(&plan.body).expect("JSON")
}

// Finding conformance FEAT-0003 FR-01: a model that takes no tools is offered none.
#[test]
fn a_model_without_tools_is_offered_none() {
    assert_eq!(body(Dialect::default(), true)["tools"][0]["function"]["name"], "shell");
    assert_eq!(body(Dialect::default(), false).get("tools"), None);
}

// Finding scenarios F12: the session is the key of the provider's cache, where the provider wants one.
#[test]
fn the_session_is_the_cache_key_where_there_is_one() {
    let keyed = Dialect { cache_key: true, ..Dialect::default() };
    assert_eq!(body(keyed, true)["prompt_cache_key"], "ses_1");
    assert_eq!(body(Dialect::default(), true).get("prompt_cache_key"), None);
}
