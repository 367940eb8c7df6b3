//! The beginnings at a boundary: of the next turn, or of a Compaction that it needs first.

use std::collections::BTreeMap;

use bytes::Bytes;
use domain::{
    AttemptId, AttemptStarted, ComponentList, DrainEnd, DrainOutcome, ErrorCode, MessageId,
    NoticeKind, NoticeRecorded, Permitted, Pricing, SessionError, TurnId, TurnStarted,
};
use history::{Circle, Components, History, hash_hex};
use llm_protocol::ToolChoice;
use serde_json::{Map, Value};

use crate::agents::Agent;
use crate::boundary::{Next, TurnPlan, end};
use crate::compact::Wanted;
use crate::draft::{Draft, Verdict};
use crate::estimate;
use crate::limits::{BODY_TOKENS, Limits, MAX_BODY_BYTES, fit_answer};
use crate::models::ResolvedModel;
use crate::observed::Observation;
use crate::permission::Layers;
use crate::rules::Rules;
use crate::site::Site;

const STEP_LIMIT: &str = "<notice>This is the last step that is allowed without new input. Do not call \
tools. Say what was done, what is left, and what you recommend to do next.</notice>";

/// The most Compactions between two turns: the pieces of a conversation that is many times too large.
const MAX_COMPACTIONS: u32 = 32;

/// The agent and the model that a turn or a Compaction begins with.
pub(crate) struct Sampled<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) model: ResolvedModel,
}

/// Whether the next request fits the model's context.
enum Room {
    Enough,
    /// Too little, but a Compaction makes enough.
    AfterCompaction,
    /// Too little, and no summary can be made: the oldest exchanges leave the view.
    WithoutTheOldest,
    /// Too little, and nothing helps.
    No(SessionError),
}

impl Rules<'_> {
    /// Begins the turn that the conversation now needs.
    pub(crate) fn go_on(&self, draft: &mut Draft<'_>, observed: &Observation) -> Verdict<Next> {
        let begun = match self.sample(draft.history()) {
            Err(error) => Err(error),
            Ok(sampled) => match self.room(draft.history(), &sampled, observed) {
                Room::AfterCompaction => {
                    return begin_compaction(self.start_compaction(draft, Wanted::auto(), sampled));
                }
                Room::WithoutTheOldest => match self.leave_out(draft, None, observed) {
                    Ok(()) => return self.go_on(draft, observed),
                    Err(error) => Err(error),
                },
                Room::Enough => self.begin_turn(draft, sampled),
                Room::No(error) => Err(error),
            },
        };
        match begun {
            Ok(plan) => {
                Verdict::Write(Next::Turn(Box::new(plan)), DrainEnd::Keep, Site::TurnStarted)
            }
            Err(error) => boundary_failed(draft, error),
        }
    }

    /// Measures the next request. A request that cannot fit is not sent, and a Compaction that cannot make it fit
    /// does not begin.
    fn room(&self, history: &History, sampled: &Sampled<'_>, observed: &Observation) -> Room {
        let settings = &self.settings.compaction;
        let Sampled { agent, model } = sampled;
        let squeeze = history.squeeze();
        let limits = self.limits(history, model, None);
        if !settings.auto && squeeze.completed == 0 {
            return Room::Enough;
        }
        let size = self.size(history, agent);
        if size < limits.threshold {
            return Room::Enough;
        }
        let fits = size <= limits.hard || mutated!(TooLargeSent);
        let tail = self.tail(history, limits, true);
        // The part that no Compaction removes. It can make a checkpoint smaller.
        let checkpoint = history.view().checkpoint().map_or(0, estimate::text);
        let least = (self.fixed(history, agent) + tail.asked).saturating_sub(checkpoint);
        let goes_on = squeeze.completed == 0 || squeeze.is_piece;
        let is_worth_it = goes_on && (!squeeze.has_failed || mutated!(FailedAgainAtOnce));
        let helps = settings.auto
            && tail.summarised > 0
            && squeeze.completed < MAX_COMPACTIONS
            && least <= limits.hard
            && (is_worth_it || !fits);
        let helps = helps || (squeeze.completed > 0 && mutated!(CompactedAgainAtOnce));
        let rests = settings.cuts && history.failed_summaries().rest(size);
        match (helps, fits) {
            (false, true) => Room::Enough,
            // The count leaves no room for any request, so it cannot be right: the provider decides.
            (false, false) if self.estimated(history, agent) <= limits.hard => Room::Enough,
            (false, false) => Room::No(too_large(size, limits.hard)),
            (true, true) if rests => Room::Enough,
            (true, _) => match (squeeze.circle(), observed.replace(history, &agent.skills)) {
                (Some(circle), _) if !mutated!(CirclesGoOn) => Room::No(in_circles(circle, limits)),
                (_, Ok(_)) if rests => Room::WithoutTheOldest,
                (_, Ok(_)) => Room::AfterCompaction,
                (_, Err(_)) if fits => Room::Enough,
                (_, Err(error)) => Room::No(error),
            },
        }
    }

    /// Returns whether the next request fits, even if a Compaction would be better.
    pub(crate) fn fits(&self, history: &History) -> bool {
        let Ok(sampled) = self.sample(history) else { return false };
        let limits = self.limits(history, &sampled.model, None);
        self.size(history, sampled.agent) <= limits.hard
    }

    /// Returns the most bytes of a tool's result: the model that reads it next could not use more.
    #[must_use]
    pub fn result_bytes(&self, history: &History) -> u64 {
        let sampled = self.sample(history);
        sampled.map_or(u64::MAX, |sampled| {
            estimate::bytes_of(self.limits(history, &sampled.model, None).share())
        })
    }

    /// Returns whether the open turn is the last one allowed without new input.
    #[must_use]
    pub fn is_last_step(&self, history: &History) -> bool {
        history.steps() >= self.steps(self.turn_agent(history).1)
    }

    /// Returns the agent of the open turn, which keeps it, with its name; without a turn, the one selected now. The
    /// agent is `None` if the settings no longer have it.
    pub(crate) fn turn_agent<'h>(&self, history: &'h History) -> (&'h str, Option<&Agent>) {
        let name = history.open_turn().map_or(history.agent(), |open| &open.agent);
        (name, self.settings.agents.get(name).ok())
    }

    /// Returns the most turns in a row that an agent may take without new input.
    fn steps(&self, agent: Option<&Agent>) -> i32 {
        agent.and_then(|agent| agent.steps).unwrap_or(self.settings.max_steps)
    }

    /// Returns the agent and the model selected now. The turn or Compaction that begins with them keeps them.
    ///
    /// # Errors
    /// `session.agent_unknown` or `model.unknown`.
    pub(crate) fn sample(&self, history: &History) -> Result<Sampled<'_>, SessionError> {
        let agent = self.settings.agents.get(history.agent())?;
        Ok(Sampled { agent, model: self.models.resolve(history.model())? })
    }

    /// Returns which of the observed skills the agent selected now may be told of.
    pub(crate) fn skills(&self, history: &History, observed: &Observation) -> Permitted {
        self.skills_of(self.settings.agents.get(history.agent()).ok(), history, observed)
    }

    /// Returns which of the observed skills an agent may be told of: those that it may load and that no rule denies.
    pub(crate) fn skills_of(
        &self,
        agent: Option<&Agent>,
        history: &History,
        observed: &Observation,
    ) -> Permitted {
        let Some(agent) = agent else { return Permitted::NOTHING.clone() };
        let layers = Layers { agent: &agent.name, ..self.layers(history) };
        observed.permit_skills(&agent.skills, |name| layers.shows_skill(name))
    }

    /// Returns what the session's users have not been told yet: about the model, and about the project's settings files. Each
    /// line once, because the log then has it.
    fn untold(&self, history: &History, of_model: Option<&str>) -> Option<String> {
        let lines = of_model.into_iter().flat_map(str::lines);
        let lines = lines.chain(self.settings.notices.iter().map(String::as_str));
        let is_untold = |line: &&str| !history.has_told(line) || mutated!(NoticedAgain);
        let untold: Vec<&str> = lines.filter(is_untold).collect();
        (!untold.is_empty()).then(|| untold.join("\n"))
    }

    /// Drafts the turn and its first attempt.
    fn begin_turn(
        &self,
        draft: &mut Draft<'_>,
        sampled: Sampled<'_>,
    ) -> Result<TurnPlan, SessionError> {
        let Sampled { agent, model: resolved } = sampled;
        let max_steps = self.steps(Some(agent));
        let parent = draft.history().last_prompt().cloned().ok_or_else(|| SessionError {
            code: ErrorCode::SessionNoPrompt.into(),
            message: "the session has no prompt to answer; send one".into(),
        })?;
        let step = if mutated!(StepsNotCounted) { 1 } else { draft.history().steps() + 1 };
        if step > max_steps {
            return Err(SessionError {
                code: ErrorCode::TurnStepLimit.into(),
                message: format!(
                    "the model went on for {max_steps} steps without new input; send a prompt to let it continue"
                ),
            });
        }
        let notice = self.untold(draft.history(), resolved.notice.as_deref());
        let title = self.start_title(draft, step, &resolved.reference);
        let last = step == max_steps;
        if last {
            let message = MessageId::mint(draft.mint());
            let text = STEP_LIMIT.to_owned();
            draft.push(NoticeRecorded { message, kind: NoticeKind::StepLimit, text });
        }
        let epoch = draft.history().epoch().map_or(0, |epoch| epoch.number);
        let turn = TurnId::mint(draft.mint());
        let message = MessageId::mint(draft.mint());
        draft.push(TurnStarted {
            turn: turn.clone(),
            message: message.clone(),
            parent,
            agent: agent.name.clone(),
            model: resolved.reference.clone(),
            epoch,
            step,
            notice,
        });
        let tool_choice = if last { ToolChoice::None } else { ToolChoice::Auto };
        let size = || self.size(draft.history(), agent);
        let pricing = resolved.pricing(size);
        let mut components = self.components(draft.history(), agent, &resolved, tool_choice);
        components.generation = fit_answer(&resolved.generation, &resolved.entry, size);
        let (started, body) = first_attempt(draft, &turn, &components, pricing);
        Ok(TurnPlan { turn, message, started, model: resolved.reference, components, body, title })
    }

    /// Returns the parts of the conversation's requests besides the conversation.
    pub(crate) fn components(
        &self,
        history: &History,
        agent: &Agent,
        model: &ResolvedModel,
        tool_choice: ToolChoice,
    ) -> Components {
        let offered = || self.tools.offered(&agent.tools, self.layers(history)).cloned();
        let offered = model.takes_tools.then(offered);
        Components {
            agent: agent.instructions.clone(),
            tools: offered.into_iter().flatten().collect(),
            tool_choice,
            generation: model.generation.clone(),
            options: self.options(model),
            model: model.entry.clone(),
        }
    }

    /// Returns Model Request Options. If the provider wants a cache key, the session is the key, so that a
    /// conversation's requests reach the machine that has its beginning.
    fn options(&self, model: &ResolvedModel) -> Map<String, Value> {
        let mut options = model.options.clone();
        if model.entry.dialect.cache_key {
            let id = model.entry.protocol.id();
            let own = options.entry(id).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(own) = own {
                let session = || Value::from(self.session.session.to_string());
                own.entry("prompt_cache_key").or_insert_with(session);
            }
        }
        options
    }

    /// Returns about how many tokens the conversation's next request has besides its messages.
    pub(crate) fn fixed(&self, history: &History, agent: &Agent) -> u64 {
        estimate::fixed(
            history,
            &agent.instructions,
            self.tools.offered(&agent.tools, self.layers(history)),
        )
    }

    /// Returns the size of the conversation's next request, by our own estimate alone.
    fn estimated(&self, history: &History, agent: &Agent) -> u64 {
        estimate::whole(
            history,
            &agent.instructions,
            self.tools.offered(&agent.tools, self.layers(history)),
        )
    }

    /// Returns about how many tokens the conversation's next request has.
    pub(crate) fn size(&self, history: &History, agent: &Agent) -> u64 {
        estimate::request(
            history,
            &agent.instructions,
            self.tools.offered(&agent.tools, self.layers(history)),
        )
    }
}

/// Drafts the first attempt of the request drafted last, with its prices, and returns its body.
pub(crate) fn first_attempt(
    draft: &mut Draft<'_>,
    turn: &TurnId,
    components: &Components,
    pricing: Option<Pricing>,
) -> (AttemptStarted, Bytes) {
    let through = draft.history().seq();
    let epoch = draft.history().epoch().map_or(0, |epoch| epoch.number);
    let body = draft.history_mut().encode(components, turn);
    let mut names = BTreeMap::new();
    let mut rows = Vec::new();
    for (name, bytes) in components.bytes() {
        let hash = hash_hex(&bytes);
        rows.push((hash.clone(), bytes));
        names.insert(name, hash);
    }
    let list = serde_json::to_vec(&names).expect("a map of strings is JSON");
    let hash = hash_hex(&list);
    rows.push((hash.clone(), list));
    draft.components(rows);
    let started = AttemptStarted {
        attempt: AttemptId::mint(draft.mint()),
        turn: turn.clone(),
        ordinal: 1,
        body_hash: hash_hex(&body),
        wire_version: components.model.protocol.wire_version(),
        epoch,
        through,
        components: ComponentList::Stored(hash),
        pricing,
    };
    draft.push(started.clone());
    (started, body.into())
}

/// Writes the drafted intent of a Compaction, which comes next.
pub(crate) fn begin_compaction(plan: TurnPlan) -> Verdict<Next> {
    Verdict::Write(Next::Compact(Box::new(plan)), DrainEnd::Keep, Site::CompactionStarted)
}

/// Ends the drain with an error. Promotions and settlements stay.
pub(crate) fn boundary_failed(draft: &mut Draft<'_>, error: SessionError) -> Verdict<Next> {
    let next = end(draft, DrainOutcome::Failed, Some(error));
    Verdict::Write(next, DrainEnd::Close, Site::BoundaryFailed)
}

fn too_large(size: u64, most: u64) -> SessionError {
    let (context, choose) = if most < BODY_TOKENS {
        ("the model's context", "choose a model with a larger context, or ")
    } else {
        ("the largest request", "")
    };
    SessionError {
        code: ErrorCode::ContextTooLarge.into(),
        message: format!(
            "the next request has about {size} tokens, and {context} {most}, and there is nothing left to summarise: \
             {choose}start a new session with a shorter prompt"
        ),
    }
}

/// Returns the error of work that its Compactions keep from getting anywhere.
pub(crate) fn in_circles(circle: Circle, limits: Limits) -> SessionError {
    let Circle { compactions, turns } = circle;
    SessionError {
        code: ErrorCode::ContextTooLarge.into(),
        message: format!(
            "the conversation was summarised {compactions} times in a row with fewer than {turns} turns in between: \
             the work needs more at once than the {} tokens after which this model's conversation is summarised; choose a \
             model with a larger context, or ask for less at once",
            limits.threshold
        ),
    }
}

impl TurnPlan {
    /// Checks that its body may be sent.
    ///
    /// # Errors
    /// `context.too_large` above the largest body.
    pub fn check_body(&self) -> Result<(), SessionError> {
        let bytes = self.body.len();
        if bytes <= MAX_BODY_BYTES {
            return Ok(());
        }
        Err(SessionError {
            code: ErrorCode::ContextTooLarge.into(),
            message: format!(
                "the next request has {bytes} bytes, and a request has at most {MAX_BODY_BYTES}: ask for a compaction, or \
                 start a new session with a shorter prompt"
            ),
        })
    }
}
