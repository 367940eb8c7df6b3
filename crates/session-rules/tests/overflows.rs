//! Compactions for turns whose requests the provider refuses as too large: their number, with those that fail.

use std::sync::Arc;

use context::SystemContext;
use domain::{
    AttemptEnded, AttemptOutcome, CompactionEnded, CompactionReason, CompactionStarted, Delivery,
    DrainEnd, EpochReason, EpochStarted, ErrorCode, Finish, IdMint, MessageId, ModelRef, OrgId,
    PartId, PromptAdmitted, PromptPart, ReplyPart, Seq, SessionCreated, SessionError, SessionEvent,
    SessionRef, SideOutcome, Stamp, Taken, TurnOutcome, TurnReplied, TurnSettled, TurnUsage,
};
use history::History;
use llm_protocol::{Dialect, Generation, Protocol};
use session_rules::{
    Draft, FixedModels, ModelFacts, Models, Next, Observation, ReadNeeds, RuleSettings, Rules,
    Said, Site, ToolFacts, TurnPlan, Verdict, WorkspaceState,
};

/// A session, and a drain's decisions about it.
struct Desk {
    history: History,
    mint: IdMint,
    session: SessionRef,
    settings: RuleSettings,
    models: Models,
    tools: ToolFacts,
}

/// A write.
struct Wrote {
    next: Next,
    events: Vec<SessionEvent>,
    end: DrainEnd,
    site: Site,
}

fn seen() -> Observation {
    Observation::new(SystemContext::combine([]), Arc::default())
}

fn error(code: ErrorCode) -> SessionError {
    SessionError { code: code.into(), message: "no".into() }
}

impl Desk {
    fn new() -> Self {
        let models = FixedModels::default();
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
        let mut desk = Self {
            history: History::new(),
            mint: IdMint::seeded(Stamp::default(), 1, 3),
            session,
            settings: RuleSettings { titles: false, ..RuleSettings::default() },
            models: Models {
                default: ModelRef::new("p", "m"),
                source: Arc::new(models.with_provider(
                    "p",
                    Protocol::OpenAiChat,
                    Dialect::default(),
                )),
            },
            tools: ToolFacts {
                needs: ReadNeeds::default(),
                classes: [].into(),
                definitions: Vec::new(),
            },
        };
        desk.push(created);
        desk
    }

    fn push(&mut self, event: impl Into<SessionEvent>) {
        let seq = Seq(self.history.seq().0 + 1);
        self.history.apply(seq, 1, &event.into());
    }

    fn decide(
        &mut self,
        decide: impl FnOnce(&Rules<'_>, &mut Draft<'_>) -> Verdict<Next>,
    ) -> Wrote {
        let rules = Rules {
            settings: &self.settings,
            models: &self.models,
            tools: &self.tools,
            changed: None,
            saved: &[],
            session: &self.session,
            workspace: WorkspaceState::Here,
            stopping: false,
            crowded: false,
            cramped: false,
            interrupts_before: Seq(0),
        };
        let mut draft = Draft::new(&mut self.history, self.mint.clone(), 1);
        let (next, end, site) = match decide(&rules, &mut draft) {
            Verdict::Write(next, end, site) => (next, end, site),
            Verdict::Leave(_) => panic!("each of these writes"),
        };
        let drafted = draft.finish();
        self.mint = drafted.mint;
        Wrote { next, events: drafted.events, end, site }
    }

    fn prompt(&mut self, text: &str) -> Wrote {
        let message = MessageId::mint(&mut self.mint);
        let id = PartId::mint(&mut self.mint);
        self.push(PromptAdmitted {
            by: None,
            message,
            delivery: Delivery::Steer,
            parts: vec![PromptPart::Text { id, text: text.into() }],
            agent: None,
            model: None,
            wake: true,
            digest: String::new(),
            synthetic: None,
        });
        let idle = Taken { was_open: false, handed_over: false, recoveries: 0 };
        self.decide(|rules, draft| rules.open(draft, idle, &seen()))
    }

    /// The provider counts the tokens of a turn's request.
    fn counts(&mut self, plan: &TurnPlan, usage: TurnUsage) {
        self.push(AttemptEnded {
            attempt: plan.started.attempt.clone(),
            turn: plan.turn.clone(),
            outcome: AttemptOutcome::Completed,
            usage: Some(usage),
            error: None,
        });
    }

    /// The model answers the open turn with words.
    fn answers(&mut self, words: &str) {
        let open = self.history.open_turn().expect("it is open");
        let (turn, message) = (open.turn.clone(), open.message.clone());
        let parts = vec![ReplyPart::text(PartId::mint(&mut self.mint), words.to_owned())];
        let finish = Finish::Stop.into();
        self.push(TurnReplied { turn: turn.clone(), message: message.clone(), parts, finish });
        let (outcome, usage) = (TurnOutcome::Completed, TurnUsage::default());
        self.push(TurnSettled { turn, message, outcome, usage, error: None });
        self.decide(|rules, draft| rules.cross(draft, false, &seen()));
    }

    /// The provider refuses a turn's request as too large.
    fn refuses(&mut self, plan: &TurnPlan) -> Wrote {
        self.refuses_with(plan, ErrorCode::ProviderContextOverflow).expect("a Compaction helps")
    }

    /// The provider refuses a turn's request. `None`: nothing but the end of the turn is left.
    fn refuses_with(&mut self, plan: &TurnPlan, code: ErrorCode) -> Option<Wrote> {
        let said = Said::new(plan.turn.clone(), plan.message.clone());
        let (attempt, error) = (&plan.started.attempt, error(code));
        let mut is_left = false;
        let wrote = self.decide(|rules, draft| {
            match rules.overflowed(draft, attempt, &said, &error, &seen()) {
                Verdict::Write(Some(next), end, site) => Verdict::Write(next, end, site),
                Verdict::Write(None, ..) | Verdict::Leave(_) => {
                    is_left = true;
                    rules.failed(draft, attempt, &said, &error)
                }
            }
        });
        (!is_left).then_some(wrote)
    }

    /// A conversation of some 2,000 tokens, and the turn of another prompt.
    fn with_conversation() -> (Self, TurnPlan) {
        let mut desk = Self::new();
        for _ in 0..4 {
            desk.prompt("hello");
            desk.answers(&"word ".repeat(400));
        }
        let plan = turn(&desk.prompt("go on"));
        (desk, plan)
    }

    /// The request for a summary fails, and its size is not why.
    fn fails(&mut self, plan: &TurnPlan) -> Wrote {
        self.fails_with(plan, ErrorCode::ProviderContentFilter)
    }

    fn fails_with(&mut self, plan: &TurnPlan, code: ErrorCode) -> Wrote {
        let said = Said::new(plan.turn.clone(), plan.message.clone());
        let error = error(code);
        self.decide(|rules, draft| rules.compaction_failed(draft, plan, &said, &error, &seen()))
    }

    /// The summary is made, and the boundary after it is crossed.
    fn is_summarised(&mut self, plan: &TurnPlan) -> Wrote {
        let epoch = self.history.epoch().expect("there is one");
        let (number, snapshot) = (epoch.number + 1, "{}".to_owned());
        self.push(CompactionEnded {
            turn: plan.turn.clone(),
            message: plan.message.clone(),
            outcome: SideOutcome::Completed,
            checkpoint: Some("<conversation-checkpoint>\nall of it".into()),
            usage: TurnUsage::default(),
            error: None,
        });
        let reason = Some(EpochReason::Compaction);
        self.push(EpochStarted { epoch: number, baseline: String::new(), snapshot, reason });
        self.decide(|rules, draft| rules.cross(draft, true, &seen()))
    }
}

fn turn(wrote: &Wrote) -> TurnPlan {
    let Next::Turn(plan) = &wrote.next else { panic!("no turn: {:?}", wrote.next) };
    (**plan).clone()
}

/// Returns the Compaction for a refused turn that a write begins.
fn compaction(wrote: &Wrote) -> TurnPlan {
    let Next::Compact(plan) = &wrote.next else { panic!("no Compaction: {:?}", wrote.next) };
    let is_for_it = |event: &SessionEvent| matches!(event, SessionEvent::CompactionStarted(CompactionStarted { reason, .. }) if *reason == CompactionReason::Overflow);
    assert!(wrote.events.iter().any(is_for_it), "{:?}", wrote.events);
    (**plan).clone()
}

// Seen by the simulation: the third was tried again, so that a refused turn got four.
#[test]
fn a_refused_turn_gets_three_compactions_with_the_failed_ones() {
    let (mut desk, plan) = Desk::with_conversation();
    let first = desk.refuses(&plan);
    let second = desk.fails(&compaction(&first));
    let again = desk.is_summarised(&compaction(&second));
    let third = desk.refuses(&turn(&again));
    let third = compaction(&third);
    assert_eq!(desk.history.squeeze().overflows, 2);
    let ended = desk.fails(&third);
    assert!(matches!(ended.next, Next::End(_)), "{:?}", ended.next);
    assert_eq!((ended.end, ended.site), (DrainEnd::Close, Site::CompactionFailed));
    let last = ended.events.last();
    let Some(SessionEvent::DrainEnded(last)) = last else { panic!("{last:?}") };
    let code = last.error.as_ref().map(|error| error.code.as_str().to_owned());
    assert_eq!(code.as_deref(), Some("session.compaction_failed"));
    // Another prompt has its own. The second failure in a row lets the oldest exchanges go.
    let next = desk.prompt("and now");
    let next = desk.refuses(&turn(&next));
    let next = desk.fails(&compaction(&next));
    turn(&next);
}

fn last_code(wrote: &Wrote) -> Option<String> {
    let Some(SessionEvent::DrainEnded(ended)) = wrote.events.last() else { return None };
    ended.error.as_ref().map(|error| error.code.as_str().to_owned())
}

// Finding reports 6: in words that nobody knew, a refusal as too large ended each prompt of the session.
#[test]
fn a_refusal_in_unknown_words_gets_one_compaction() {
    for code in [ErrorCode::ProviderInvalidRequest, ErrorCode::ProviderUnknown] {
        let (mut desk, plan) = Desk::with_conversation();
        let first = desk.refuses_with(&plan, code).expect("it may have been too large");
        assert_eq!((first.end, first.site), (DrainEnd::Keep, Site::Overflowed));
        let started = first.events.iter().find_map(|event| {
            if let SessionEvent::CompactionStarted(started) = event {
                Some(started.clone())
            } else {
                None
            }
        });
        let scope = started.expect("a Compaction").scope;
        let refused = scope.refused.expect("the size that was refused");
        assert!(scope.tokens <= refused / 2 + 100, "less than that is sent: {scope:?}");
        let again = turn(&desk.is_summarised(&compaction(&first)));
        // It was not the size: the provider's words stand.
        assert!(desk.refuses_with(&again, code).is_none(), "once");
    }
}

#[test]
fn a_summary_after_unknown_words_leaves_nothing_out() {
    let (mut desk, plan) = Desk::with_conversation();
    let unknown = ErrorCode::ProviderInvalidRequest;
    let mut wrote = desk.refuses_with(&plan, unknown).expect("a Compaction");
    let mut requests = 0;
    while let Next::Compact(plan) = &wrote.next {
        requests += 1;
        assert!(requests <= 5, "it does not end");
        let plan = (**plan).clone();
        wrote = desk.fails_with(&plan, unknown);
    }
    assert_eq!(
        last_code(&wrote).as_deref(),
        Some("provider.invalid-request"),
        "the refusal itself"
    );
    assert_eq!(desk.history.failed_summaries().left_out, 0);
}

#[test]
fn refusals_far_below_what_worked_are_not_about_size() {
    let small = || {
        let mut desk = Desk::new();
        desk.prompt("hello");
        desk.answers("hi");
        let plan = turn(&desk.prompt("go on"));
        (desk, plan)
    };
    let (mut desk, plan) = small();
    assert!(desk.refuses_with(&plan, ErrorCode::ProviderInvalidRequest).is_none(), "tiny");
    let (mut desk, plan) = Desk::with_conversation();
    desk.counts(&plan, TurnUsage { input: 90_000, output: 10, ..TurnUsage::default() });
    desk.answers("it fits");
    // A summary has made the conversation small since.
    let plan = turn(&desk.prompt("and on"));
    let wrote = desk.refuses(&plan);
    desk.is_summarised(&compaction(&wrote));
    desk.answers(&"word ".repeat(1_600));
    let plan = turn(&desk.prompt("and on"));
    assert!(desk.refuses_with(&plan, ErrorCode::ProviderInvalidRequest).is_none(), "far below");
}

// Finding reports 6: a compaction by hand sent the whole history again, and was refused again.
#[test]
fn a_compaction_refused_in_unknown_words_takes_less() {
    let (mut desk, plan) = Desk::with_conversation();
    let first = desk.refuses(&plan);
    let first = compaction(&first);
    let before = desk.history.compacting().expect("it runs").side.started.scope.clone();
    let second = desk.fails_with(&first, ErrorCode::ProviderInvalidRequest);
    assert_eq!((second.end, second.site), (DrainEnd::Keep, Site::CompactionShrunk));
    let after = desk.history.compacting().expect("another").side.started.scope.clone();
    assert!(after.tokens < before.tokens && after.refusals == 1, "{before:?} {after:?}");
}

// Finding: report 30-a17 (0xku/kon#91).
#[test]
fn a_turns_answer_may_have_what_its_prompt_leaves() {
    let mut desk = Desk::new();
    let model = ModelRef::new("p", "m");
    let facts = ModelFacts {
        context_limit: Some(32_768),
        output_limit: Some(32_768),
        generation: Generation { max_tokens: Some(32_000), ..Generation::default() },
        ..ModelFacts::default()
    };
    let models = FixedModels::default();
    let models = models.with_provider("p", Protocol::OpenAiChat, Dialect::default());
    desk.models.source = Arc::new(models.with_facts(model, facts));
    let plan = turn(&desk.prompt(&"word ".repeat(2_400)));
    let most = plan.components.generation.max_tokens.expect("it is bounded");
    assert!((16_000..=32_768 - 3_000).contains(&most), "{most}");
    let body = String::from_utf8_lossy(&plan.body);
    assert!(body.contains(&format!("\"max_tokens\":{most}")), "{body}");
}
