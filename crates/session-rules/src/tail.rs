//! Chooses the end of a conversation that a Compaction leaves unchanged.

use history::{Conversation, View};
use llm_protocol::{Message, Part, Role};

use crate::estimate;
use crate::texts::NOTICE;

/// The effect of a Compaction on a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tail {
    /// The index of the first message that stays; the conversation's length if none does.
    pub(crate) from: usize,
    /// Indices of earlier messages that stay word for word: prompts that are being answered.
    pub(crate) kept: Vec<usize>,
    /// The number of messages to summarise.
    pub(crate) summarised: usize,
    /// The estimated tokens of the newest prompt that is being answered. No Compaction reduces them.
    pub(crate) asked: u64,
}

/// Chooses the tail: the newest messages of at most `keep` tokens, from the beginning of an exchange on. If
/// everything fits, it is the newest exchange alone; if there is only one exchange, nothing. Exchanges stay or go as
/// a whole, so that a call never loses its result, ours or the provider's.
///
/// `working`: the model is working on the newest prompts. These stay word for word wherever they are: the newest one
/// at any size, and those before it as far as they fit into `keep`.
pub(crate) fn tail(conversation: &Conversation, view: &View, keep: u64, working: bool) -> Tail {
    let all = conversation.messages();
    let end = all.len();
    let shown: Vec<(usize, &Message)> =
        view.since(conversation, 0).filter(|(_, message)| message.role != Role::System).collect();
    let sizes = sizes(&shown);
    let size = |from: usize| sizes[shown.partition_point(|(at, _)| *at < from)];
    let batches = batches(conversation, &shown);
    // The first exchange could only stay if nothing were summarised.
    let first = shown.first().map_or(end, |(at, _)| *at);
    let mut fitting = batches
        .iter()
        .map(|batch| batch[0])
        .filter(|at| *at > first && *at >= view.from() && size(*at) <= keep);
    let chosen = if size(first) <= keep { fitting.next_back() } else { fitting.next() };
    let asked: &[Vec<usize>] = if working { asked(&batches, &shown) } else { &[] };
    let tokens = |at: &usize| estimate::message(&all[*at]);
    let mut kept = Vec::new();
    let mut left = keep;
    for (nth, at) in asked.iter().flatten().rev().enumerate() {
        let older = if nth == 0 { 0 } else { tokens(at) };
        let Some(rest) = left.checked_sub(older) else { break };
        left = rest;
        kept.push(*at);
    }
    let newest = kept.first().map_or(0, tokens);
    kept.sort_unstable();
    // Prompts without any answer yet are the tail.
    let is_kept = |kept: &[usize], at: &usize| kept.binary_search(at).is_ok();
    let unanswered = shown.iter().rev().take_while(|(at, _)| is_kept(&kept, at)).last();
    let from = chosen.or(unanswered.map(|(at, _)| *at)).unwrap_or(end).max(view.from());
    kept.retain(|at| *at < from);
    let goes = |at: &usize| *at < from && !is_kept(&kept, at);
    let summarised = shown.iter().filter(|(at, _)| goes(at)).count();
    Tail { from, summarised, asked: newest, kept }
}

/// Returns the tokens of the messages from each place on, and 0 for the end: each message is looked at once.
fn sizes(shown: &[(usize, &Message)]) -> Vec<u64> {
    let mut sizes = vec![0; shown.len() + 1];
    for (nth, (_, said)) in shown.iter().enumerate().rev() {
        sizes[nth] = sizes[nth + 1] + estimate::message(said);
    }
    sizes
}

/// Returns prompts that were promoted together, each batch as the indices of its messages.
fn batches(conversation: &Conversation, shown: &[(usize, &Message)]) -> Vec<Vec<usize>> {
    let mut batches: Vec<Vec<usize>> = Vec::new();
    for (at, _) in shown.iter().filter(|(_, message)| is_prompt(message)) {
        let place = |at: usize| conversation.place(at).map_or(0, |seq| seq.0);
        match batches.last_mut() {
            Some(batch) if batch.last().is_some_and(|last| place(*last) + 1 == place(*at)) => {
                batch.push(*at);
            }
            _ => batches.push(vec![*at]),
        }
    }
    batches
}

/// Returns the batches that the model is answering: those since its last final answer.
fn asked<'b>(batches: &'b [Vec<usize>], shown: &[(usize, &Message)]) -> &'b [Vec<usize>] {
    let is_final = |pair: &[(usize, &Message)]| {
        let [(_, said), (_, next)] = pair else { return false };
        said.role == Role::Assistant && is_prompt(next)
    };
    let answered = shown.windows(2).rposition(is_final).map_or(0, |nth| shown[nth + 1].0);
    let first = batches.partition_point(|batch| batch[0] < answered);
    &batches[first..]
}

/// Returns whether somebody wrote the message, rather than this service.
fn is_prompt(message: &Message) -> bool {
    let notice = |part: &Part| matches!(part, Part::Text(text) if text.text.starts_with(NOTICE));
    message.role == Role::User && !message.content.first().is_some_and(notice)
}

#[cfg(test)]
mod tests {
    use domain::{
        CallId, CompactionEnded, CompactionReason, CompactionStarted, EpochStarted, IdMint,
        MessageId, ModelRef, NoticeKind, NoticeRecorded, PartId, PromptPart, PromptPromoted,
        ReplyPart, Seq, SessionEvent, SideOutcome, Stamp, SummaryScope, ToolCalled, ToolClass,
        ToolIntent, ToolOutcomeKind, ToolState, TurnId, TurnOutcome, TurnReplied, TurnSettled,
        TurnStarted, TurnUsage,
    };
    use history::History;

    use super::*;
    use crate::settle::settled_as;

    struct Told {
        history: History,
        mint: IdMint,
    }

    impl Told {
        /// Builds a conversation: `u10` is a prompt of ten tokens, `a10` an answer of ten, `t10` a round with a call
        /// whose result has ten, `n10` a notice.
        fn new(script: &str) -> Self {
            let history = History::new();
            let mut told = Self { history, mint: IdMint::after(Stamp::default(), 1) };
            script.split_whitespace().for_each(|word| told.say(word));
            told
        }

        fn push(&mut self, event: impl Into<SessionEvent>) {
            let seq = Seq(self.history.seq().0 + 1);
            self.history.apply(seq, 1, &event.into());
        }

        fn say(&mut self, word: &str) {
            let (kind, size) = word.split_at(1);
            let text = "x".repeat(size.parse::<usize>().expect("a size") * 4);
            let message = MessageId::mint(&mut self.mint);
            match kind {
                "u" => {
                    let parts = vec![PromptPart::Text { id: PartId::mint(&mut self.mint), text }];
                    self.push(PromptPromoted {
                        message,
                        parts,
                        agent: "build".into(),
                        model: model(),
                        admitted: 1,
                        synthetic: None,
                    });
                }
                "n" => self.push(NoticeRecorded {
                    message,
                    kind: NoticeKind::Continuation,
                    text: format!("{NOTICE}{text}"),
                }),
                "a" => self.turn(message, Some(text), None),
                _ => self.turn(message, None, Some(text)),
            }
        }

        fn turn(&mut self, message: MessageId, says: Option<String>, result: Option<String>) {
            let turn = TurnId::mint(&mut self.mint);
            self.push(TurnStarted {
                turn: turn.clone(),
                message: message.clone(),
                parent: message.clone(),
                agent: "build".into(),
                model: model(),
                epoch: 1,
                step: 1,
                notice: None,
            });
            let mut parts = Vec::new();
            if let Some(text) = says {
                parts.push(ReplyPart::text(PartId::mint(&mut self.mint), text));
            }
            if let Some(output) = result {
                let call = CallId::mint(&mut self.mint);
                let intent = ToolIntent {
                    call: call.clone(),
                    part: PartId::mint(&mut self.mint),
                    provider_call: "call_1".into(),
                    tool: "t".into(),
                    arguments: String::new(),
                    metadata: None,
                };
                let state = ToolState::Started;
                let class = ToolClass::Pure;
                let (of, at) = (turn.clone(), message.clone());
                self.push(ToolCalled { turn: of, message: at, class, intent, state });
                parts.push(ReplyPart::ToolCall { call: call.clone() });
                let done = ToolOutcomeKind::Completed;
                self.push(settled_as(turn.clone(), call, done, &output, 1));
            }
            let (of, at) = (turn.clone(), message.clone());
            self.push(TurnReplied {
                turn: of,
                message: at,
                parts,
                finish: domain::Finish::Stop.into(),
            });
            let usage = TurnUsage::default();
            let outcome = TurnOutcome::Completed;
            self.push(TurnSettled { turn, message, outcome, usage, error: None });
        }

        fn tail(&self, keep: u64) -> Tail {
            tail(self.history.conversation(), self.history.view(), keep, true)
        }
    }

    fn model() -> ModelRef {
        ModelRef::new("p", "m")
    }

    fn from(script: &str, keep: u64) -> usize {
        Told::new(script).tail(keep).from
    }

    #[test]
    fn the_newest_whole_exchanges_that_fit_stay() {
        let script = "u10 a10 u10 a10 u10 a10";
        assert_eq!(from(script, 50), 2);
        assert_eq!(from(script, 39), 4);
        assert_eq!(from(script, 20), 4);
        assert_eq!(from(script, 19), 6, "the newest does not fit: nothing stays");
    }

    #[test]
    fn if_everything_fits_only_the_newest_exchange_stays() {
        assert_eq!(from("u10 a10 u10 a10 u10 a10", 1_000), 4);
    }

    #[test]
    fn a_single_exchange_is_summarised_whole() {
        assert_eq!(from("u10 t10 t10 a10", 1_000), 6);
        assert_eq!(from("u10 t10 t10", 1_000), 5, "in the middle of its work, too");
        assert_eq!(from("u10 t10 n1", 1_000), 4, "a notice begins no exchange");
    }

    // Finding scenarios "Seen besides": the next request was the checkpoint alone.
    #[test]
    fn prompts_that_are_being_answered_stay_word_for_word() {
        let kept = |script: &str, keep: u64| {
            let tail = Told::new(script).tail(keep);
            (tail.from, tail.kept)
        };
        assert_eq!(kept("u10 a10 u10 t90 t90", 100), (7, vec![2]));
        assert_eq!(kept("u10 t90 u10 t90", 100), (6, vec![0, 3]), "with those that steered it");
        assert_eq!(kept("u90 t90 u10 t90", 80), (6, vec![3]), "as far as they fit");
        assert_eq!(kept("u10 t90 n1 u10 n1", 100), (4, vec![0]));
        let idle = Told::new("u10 t90 t90");
        let (conversation, view) = (idle.history.conversation(), idle.history.view());
        assert_eq!(tail(conversation, view, 100, false).kept, [0_usize; 0], "nobody is at work");
    }

    // Finding scenarios F16: a first prompt above the context made all later ones fail.
    #[test]
    fn a_prompt_that_failed_alone_is_summarised_before_the_next_one() {
        let mut told = Told::new("u500");
        told.push(domain::DrainEnded { outcome: domain::DrainOutcome::Failed, error: None });
        told.say("u10");
        let tail = told.tail(100);
        assert_eq!((tail.from, tail.kept, tail.summarised, tail.asked), (1, Vec::new(), 1, 10));
    }

    #[test]
    fn prompts_of_one_batch_belong_to_one_exchange() {
        assert_eq!(from("u10 a10 u10 u10 a10", 30), 2);
        assert_eq!(from("u10 a10 u10 u10 a10", 25), 5, "they are not parted");
    }

    #[test]
    fn a_prompt_without_an_answer_stays_whatever_its_size() {
        assert_eq!(from("u10 a10 u500", 100), 2);
        assert_eq!(from("u10 t10 u500", 100), 3, "a steer");
        assert_eq!(from("u500", 100), 0, "it is all there is");
        assert_eq!(from("u10 u10 t5", 100), 4, "it is answered");
    }

    #[test]
    fn calls_and_their_results_stay_or_go_together() {
        for keep in 0..80 {
            let told = Told::new("u5 t9 t9 a5 u5 t9 t9 t9 a5 u5 t9");
            let from = told.tail(keep).from;
            let messages = told.history.conversation().messages();
            let kept = &messages[from..];
            assert!(kept.is_empty() || kept[0].role == Role::User, "{keep}: {from}");
        }
    }

    // Finding core-3 H3: all messages were summed up once more for each exchange.
    #[test]
    fn each_message_is_estimated_twice_at_most() {
        for (exchange, messages) in [("u10 a10 ", 2), ("u10 ", 1)] {
            for exchanges in [500, 1_000] {
                let told = Told::new(&exchange.repeat(exchanges));
                let before = estimate::estimated();
                told.tail(5_000);
                let looked = estimate::estimated() - before;
                assert!(looked <= 2 * messages * exchanges, "{looked} of {exchanges} {exchange}");
            }
        }
    }

    #[test]
    fn what_was_summarised_before_is_not_looked_at_again() {
        let mut told = Told::new("u10 a10 u10 a10");
        let turn = TurnId::mint(&mut told.mint);
        let message = MessageId::mint(&mut told.mint);
        let keep = told.history.conversation().place(2).expect("a message");
        told.push(CompactionStarted {
            turn: turn.clone(),
            message: message.clone(),
            reason: CompactionReason::Manual,
            input: None,
            continuing: false,
            agent: "build".into(),
            model: model(),
            epoch: 1,
            prompt: String::new(),
            keep_from: keep,
            cause: None,
            scope: SummaryScope::default(),
        });
        told.push(CompactionEnded {
            turn,
            message,
            outcome: SideOutcome::Completed,
            checkpoint: Some("c".into()),
            usage: TurnUsage::default(),
            error: None,
        });
        let (baseline, snapshot) = (String::new(), "{}".to_owned());
        told.push(EpochStarted { epoch: 2, baseline, snapshot, reason: None });
        let tail = Tail { from: 4, kept: vec![2], summarised: 1, asked: 10 };
        assert_eq!(told.tail(1_000), tail);
        told.say("u10");
        let tail = Tail { from: 4, kept: Vec::new(), summarised: 2, asked: 10 };
        assert_eq!(told.tail(1_000), tail);
    }
}
