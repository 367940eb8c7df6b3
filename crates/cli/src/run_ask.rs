//! The asks of a run: calls that wait for a person.

use std::collections::VecDeque;
use std::io::BufRead as _;

use domain::{Ask, AskId, CallId, Question, SessionEvent, ToolAsked};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::render::printable;

/// A run's answer to calls that wait for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum AskPolicy {
    /// Refuse the call, and let the model go on without it
    Reject,
    /// Wait until somebody answers elsewhere
    Wait,
    /// Let the call run
    Allow,
}

/// The model learns why nobody answers.
const NOBODY: &str = "Nobody can answer here: this run has no terminal. Do without this call, or say what is needed and stop.";
const UNANSWERABLE: &str =
    "Nobody can answer questions here. Decide yourself, and say what you decided.";

/// An answer to send.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) ask: AskId,
    pub(crate) body: Value,
}

/// The asks that wait, the oldest first.
#[derive(Debug)]
pub(crate) struct Asks {
    /// `None`: a person at the terminal is asked.
    policy: Option<AskPolicy>,
    waiting: VecDeque<ToolAsked>,
    /// The first was shown; with questions, the answers so far.
    shown: Option<Vec<Vec<String>>>,
    /// The calls that were refused because nobody could answer.
    refused: Vec<String>,
    lines: Option<mpsc::Receiver<String>>,
}

/// The next step for the first ask.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// Nothing now.
    Nothing,
    /// Print this for the person.
    Show(String),
    /// Send this.
    Send(Reply),
}

impl Asks {
    pub(crate) fn new(policy: Option<AskPolicy>) -> Self {
        Self { policy, waiting: VecDeque::new(), shown: None, refused: Vec::new(), lines: None }
    }

    /// Applies an event of our work.
    pub(crate) fn observe(&mut self, event: &SessionEvent) {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these are about asks")]
        match event {
            SessionEvent::ToolAsked(asked) => self.waiting.push_back(asked.clone()),
            SessionEvent::ToolAnswered(answered) => self.over(|asked| asked.ask == answered.ask),
            SessionEvent::ToolSettled(settled) => {
                let call: &CallId = &settled.call;
                self.over(|asked| asked.call == *call);
            }
            _ => {}
        }
    }

    fn over(&mut self, is_over: impl Fn(&ToolAsked) -> bool) {
        if self.waiting.front().is_some_and(&is_over) {
            self.shown = None;
        }
        self.waiting.retain(|asked| !is_over(asked));
    }

    /// Returns what was refused because nobody could answer.
    pub(crate) fn refused(&self) -> &[String] {
        &self.refused
    }

    /// Returns whether a person is looking at a question.
    pub(crate) fn is_shown(&self) -> bool {
        self.shown.is_some() && self.policy.is_none()
    }

    /// Returns the next step for the first ask. An ask is shown or answered once.
    pub(crate) fn step(&mut self) -> Step {
        let Some(first) = self.waiting.front() else { return Step::Nothing };
        if self.shown.is_some() {
            return Step::Nothing;
        }
        self.shown = Some(Vec::new());
        let ask = first.ask.clone();
        let refuse = |words: &str| json!({ "reply": "reject", "message": words });
        let body = match (self.policy, &first.about) {
            (None, Ask::Permission { .. }) => return Step::Show(permission(first)),
            (None, Ask::Question { questions }) => return Step::Show(question(&questions[0])),
            (Some(AskPolicy::Wait), about) => {
                return Step::Show(format!(
                    "waiting for an answer: {}\n  opencode-cloud ask reply {ask} once",
                    brief(about)
                ));
            }
            (Some(AskPolicy::Allow), Ask::Permission { .. }) => json!({ "reply": "once" }),
            (Some(AskPolicy::Allow | AskPolicy::Reject), Ask::Question { .. }) => {
                refuse(UNANSWERABLE)
            }
            (Some(AskPolicy::Reject), about) => {
                self.refused.push(brief(about));
                refuse(NOBODY)
            }
        };
        Step::Send(Reply { ask, body })
    }

    /// Returns the person's next line. Waits for ever when standard input has ended.
    pub(crate) async fn line(&mut self) -> String {
        let lines = self.lines.get_or_insert_with(read_lines);
        match lines.recv().await {
            Some(line) => line,
            None => std::future::pending().await,
        }
    }

    /// Takes the person's line for the first ask.
    pub(crate) fn take(&mut self, line: &str) -> Step {
        let (Some(first), Some(answers)) = (self.waiting.front(), &mut self.shown) else {
            return Step::Nothing;
        };
        let (ask, line) = (first.ask.clone(), line.trim());
        let body = match &first.about {
            Ask::Permission { save, .. } => match line {
                "y" | "yes" => json!({ "reply": "once" }),
                "a" | "always" if !save.is_empty() => json!({ "reply": "always" }),
                "n" | "no" => json!({ "reply": "reject" }),
                "" | "a" | "always" => return Step::Show(permission(first)),
                words => json!({ "reply": "reject", "message": words }),
            },
            Ask::Question { questions } => {
                answers.push(chosen(&questions[answers.len().min(questions.len() - 1)], line));
                if let Some(next) = questions.get(answers.len()) {
                    return Step::Show(question(next));
                }
                json!({ "answers": answers })
            }
        };
        Step::Send(Reply { ask, body })
    }
}

/// Reads standard input on a thread of its own, which ends with the process.
fn read_lines() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Returns an ask in one line.
fn brief(about: &Ask) -> String {
    match about {
        Ask::Permission { action, resources, .. } => {
            let of = resources.iter().map(|text| format!("`{}`", printable::line(text, 200)));
            format!("{} {}", printable::line(action, 80), of.collect::<Vec<_>>().join(", "))
        }
        Ask::Question { questions } => {
            let texts = questions.iter().map(|asked| printable::line(&asked.question, 200));
            texts.collect::<Vec<_>>().join(" ")
        }
    }
}

fn permission(asked: &ToolAsked) -> String {
    let always = match &asked.about {
        Ask::Permission { save, .. } if !save.is_empty() => {
            let save = save.iter().map(|pattern| printable::line(pattern, 100)).collect::<Vec<_>>();
            format!(", a for always (`{}`)", save.join("`, `"))
        }
        Ask::Permission { .. } | Ask::Question { .. } => String::new(),
    };
    format!(
        "may it run {}?\n  y for yes{always}, n for no, or say what to do instead:",
        brief(&asked.about)
    )
}

fn question(asked: &Question) -> String {
    let mut text = printable::line(&asked.question, 1_000);
    for (number, option) in (1..).zip(&asked.options) {
        let (label, meaning) =
            (printable::line(&option.label, 200), printable::line(&option.description, 400));
        text.push_str(&format!("\n  {number} {label}"));
        if !meaning.is_empty() {
            text.push_str(&format!(": {meaning}"));
        }
    }
    text.push_str(match (asked.options.is_empty(), asked.multiple) {
        (true, _) => "\n  your answer:",
        (false, false) => "\n  a number, or other words:",
        (false, true) => "\n  numbers with commas between, or other words:",
    });
    text
}

/// Returns the labels that a person's line chooses, or the line.
fn chosen(asked: &Question, line: &str) -> Vec<String> {
    let numbers = line.split(',').map(|word| word.trim().parse::<usize>().ok());
    let labels = numbers.map(|number| {
        let option = asked.options.get(number?.checked_sub(1)?)?;
        Some(option.label.clone())
    });
    match labels.collect::<Option<Vec<_>>>() {
        Some(labels) if asked.multiple || labels.len() == 1 => labels,
        Some(_) | None if line.is_empty() => Vec::new(),
        Some(_) | None => vec![line.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use domain::{QuestionOption, ToolAnswered};

    use super::*;

    fn asked(number: u32, about: Ask) -> SessionEvent {
        let ask = match about {
            Ask::Permission { .. } => format!("per_{number}"),
            Ask::Question { .. } => format!("que_{number}"),
        };
        let (turn, call) = ("trn_1".parse().expect("an id"), format!("call_{number}"));
        let (call, ask) = (call.parse().expect("an id"), ask.parse().expect("an id"));
        ToolAsked { turn, call, ask, about, expires: 0 }.into()
    }

    fn push() -> Ask {
        let (action, resources) = ("shell".to_owned(), vec!["git push".to_owned()]);
        Ask::Permission { action, resources, save: vec!["git push *".into()] }
    }

    fn sent(step: Step) -> Value {
        match step {
            Step::Send(reply) => reply.body,
            other @ (Step::Nothing | Step::Show(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_a_terminal_the_policy_answers_once() {
        let step = |policy| {
            let mut asks = Asks::new(Some(policy));
            asks.observe(&asked(1, push()));
            let step = asks.step();
            assert_eq!(asks.step(), Step::Nothing);
            (step, asks.refused().to_vec())
        };
        let (refused, told) = step(AskPolicy::Reject);
        assert_eq!(sent(refused), json!({ "reply": "reject", "message": NOBODY }));
        assert_eq!(told, ["shell `git push`"]);
        let (allowed, told) = step(AskPolicy::Allow);
        assert_eq!((sent(allowed), told.len()), (json!({ "reply": "once" }), 0));
        let (waits, _) = step(AskPolicy::Wait);
        let shown =
            "waiting for an answer: shell `git push`\n  opencode-cloud ask reply per_1 once";
        assert_eq!(waits, Step::Show(shown.into()));
    }

    #[test]
    fn a_person_answers_with_a_letter_or_with_words() {
        let mut asks = Asks::new(None);
        asks.observe(&asked(1, push()));
        let shown = "may it run shell `git push`?\n  y for yes, a for always (`git push *`), n for no, or say what to do instead:";
        assert_eq!(asks.step(), Step::Show(shown.into()));
        assert!(asks.is_shown());
        assert_eq!(asks.take(""), Step::Show(shown.into()));
        assert_eq!(sent(asks.take(" y ")), json!({ "reply": "once" }));
        assert_eq!(sent(asks.take("always")), json!({ "reply": "always" }));
        assert_eq!(sent(asks.take("n")), json!({ "reply": "reject" }));
        let words = json!({ "reply": "reject", "message": "open a pull request" });
        assert_eq!(sent(asks.take("open a pull request")), words);
    }

    #[test]
    fn an_answer_from_elsewhere_ends_the_dialog() {
        let mut asks = Asks::new(None);
        asks.observe(&asked(1, push()));
        asks.observe(&asked(2, push()));
        assert!(matches!(asks.step(), Step::Show(_)));
        let (call, ask) = ("call_1".parse().expect("an id"), "per_1".parse().expect("an id"));
        let answer = domain::Answer::Once;
        asks.observe(&ToolAnswered { call, ask, answer, by: None }.into());
        assert!(!asks.is_shown());
        assert!(matches!(asks.step(), Step::Show(_)), "the second one comes");
        assert_eq!(asks.waiting.len(), 1);
    }

    #[test]
    fn questions_are_answered_one_after_the_other() {
        let option = |label: &str| QuestionOption { label: label.into(), description: "d".into() };
        let first = Question {
            question: "Which?".into(),
            header: "Which".into(),
            options: vec![option("one"), option("two")],
            multiple: true,
        };
        let second = Question { options: Vec::new(), multiple: false, ..first.clone() };
        let mut asks = Asks::new(None);
        asks.observe(&asked(1, Ask::Question { questions: vec![first, second] }));
        let shown =
            "Which?\n  1 one: d\n  2 two: d\n  numbers with commas between, or other words:";
        assert_eq!(asks.step(), Step::Show(shown.into()));
        assert_eq!(asks.take("2, 1"), Step::Show("Which?\n  your answer:".into()));
        let answers = json!({ "answers": [["two", "one"], ["blue"]] });
        assert_eq!(sent(asks.take("blue")), answers);
    }
}
