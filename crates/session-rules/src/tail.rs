//! Which end of a conversation a Compaction leaves as it is.

use history::{Conversation, View};
use llm_protocol::{Message, Part, Role};

use crate::estimate;
use crate::texts::NOTICE;

/// What a Compaction would do to a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tail {
    /// The index of the first message that stays; the conversation's length when none does.
    pub(crate) from: usize,
    /// Whether the model has said anything of what would be summarised or kept.
    pub(crate) answered: bool,
    /// How many messages would be summarised.
    pub(crate) summarised: usize,
}

/// Chooses the tail: the newest messages of at most `keep` tokens, from the beginning of an exchange on. If
/// everything is that small, the newest exchange alone; if there is only one, nothing. A prompt that is not
/// answered yet always stays, unless it is all there is.
///
/// Exchanges stay or go as a whole, so a call is never parted from its result, be it ours or the provider's.
pub(crate) fn tail(conversation: &Conversation, view: &View, keep: u64) -> Tail {
    let all = conversation.messages();
    let shown: Vec<usize> = (view.from()..all.len())
        .filter(|at| view.shows(*at, &all[*at]) && all[*at].role != Role::System)
        .collect();
    let answered = shown.iter().any(|at| all[*at].role == Role::Assistant);
    let starts: Vec<usize> = shown
        .iter()
        .enumerate()
        .filter(|(nth, at)| {
            let joins = *nth > 0 && is_prompt(&all[shown[nth - 1]]);
            is_prompt(&all[**at]) && !joins
        })
        .map(|(_, at)| *at)
        .collect();
    let size = |from: usize| -> u64 {
        shown.iter().filter(|at| **at >= from).map(|at| estimate::message(&all[*at])).sum()
    };
    // The first exchange stays only in the sense that nothing would be summarised.
    let candidates =
        starts.iter().copied().filter(|at| shown.first().is_some_and(|first| at > first));
    let fits = |from: &usize| size(*from) <= keep;
    let unanswered = starts.last().copied().filter(|at| {
        shown.iter().all(|other| other < at || all[*other].role == Role::User)
            && shown.first().is_some_and(|first| at > first)
    });
    let everything = shown.first().is_none_or(|first| size(*first) <= keep);
    let mut candidates = candidates.filter(fits);
    let chosen = if everything { candidates.next_back() } else { candidates.next() };
    let from = chosen.or(unanswered).unwrap_or(all.len());
    let summarised = shown.iter().filter(|at| **at < from).count();
    Tail { from, answered, summarised }
}

/// Whether somebody wrote it, rather than this service.
fn is_prompt(message: &Message) -> bool {
    let notice = |part: &Part| matches!(part, Part::Text(text) if text.text.starts_with(NOTICE));
    message.role == Role::User && !message.content.first().is_some_and(notice)
}

#[cfg(test)]
mod tests {
    use domain::{
        CallId, CompactionEnded, CompactionReason, CompactionStarted, EpochStarted, IdMint,
        MessageId, ModelRef, NoticeKind, NoticeRecorded, PartId, PromptPart, PromptPromoted,
        ReplyPart, Seq, SessionEvent, SideOutcome, Stamp, ToolCalled, ToolClass, ToolIntent,
        ToolOutcomeKind, ToolState, TurnId, TurnOutcome, TurnReplied, TurnSettled, TurnStarted,
        TurnUsage,
    };
    use history::History;

    use super::*;
    use crate::settle::settled_as;

    struct Told {
        history: History,
        mint: IdMint,
    }

    impl Told {
        /// `u10` a prompt of ten tokens, `a10` an answer of ten, `t10` a round with a call whose result
        /// has ten, `n10` a notice.
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
            self.push(TurnReplied { turn: of, message: at, parts, finish: "stop".into() });
            let usage = TurnUsage::default();
            let outcome = TurnOutcome::Completed;
            self.push(TurnSettled { turn, message, outcome, usage, error: None });
        }

        fn tail(&self, keep: u64) -> Tail {
            tail(self.history.conversation(), self.history.view(), keep)
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

    #[test]
    fn prompts_of_one_batch_belong_to_one_exchange() {
        assert_eq!(from("u10 a10 u10 u10 a10", 30), 2);
        assert_eq!(from("u10 a10 u10 u10 a10", 25), 5, "they are not parted");
    }

    #[test]
    fn a_prompt_without_an_answer_stays_whatever_its_size() {
        assert_eq!(from("u10 a10 u500", 100), 2);
        assert_eq!(from("u10 t10 u500", 100), 3, "a steer");
        assert_eq!(from("u500", 100), 1, "it is all there is");
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
        assert_eq!(told.tail(1_000), Tail { from: 4, answered: true, summarised: 2 });
        told.say("u10");
        assert_eq!(told.tail(1_000), Tail { from: 4, answered: true, summarised: 2 });
    }
}
