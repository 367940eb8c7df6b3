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
/// The permission that guards against the same call again and again.
const CIRCLE: &str = "doom_loop";
/// A model that goes in a circle needs no person: it learns that it does, and goes on.
const IN_A_CIRCLE: &str = "You have made this same call several times in a row. Look at what it returned, then do something else; if you only \
     wait for something, wait longer within one command.";

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
            (Some(AskPolicy::Reject), Ask::Permission { action, .. }) if action == CIRCLE => {
                refuse(IN_A_CIRCLE)
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
            Ask::Permission { save, .. } => match read_answer(line, !save.is_empty()) {
                Some(body) => body,
                None => return Step::Show(permission(first)),
            },
            Ask::Question { questions } => {
                let asked = &questions[answers.len().min(questions.len() - 1)];
                match choose_labels(asked, line) {
                    Ok(chosen) => answers.push(chosen),
                    Err(why) => return Step::Show(format!("{why}\n{}", question(asked))),
                }
                if let Some(next) = questions.get(answers.len()) {
                    return Step::Show(question(next));
                }
                json!({ "answers": answers })
            }
        };
        Step::Send(Reply { ask, body })
    }
}

/// Reads a person's answer to a permission, in any case; words after a no are for the model. Returns `None` for anything
/// else, which is asked again: a refusal ends more than a person who mistypes has in mind.
fn read_answer(line: &str, may_save: bool) -> Option<Value> {
    let (word, words) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let word = word.trim_end_matches([',', '.', ';', ':', '!']).to_lowercase();
    let words = words.trim();
    match (word.as_str(), words) {
        ("once", "") => Some(json!({ "reply": "once" })),
        (word, "") if is_yes(word) => Some(json!({ "reply": "once" })),
        ("a" | "always", "") if may_save => Some(json!({ "reply": "always" })),
        ("n" | "no", "") => Some(json!({ "reply": "reject" })),
        ("n" | "no", words) => Some(json!({ "reply": "reject", "message": words })),
        _ => None,
    }
}

/// Returns whether a line means yes, in any case.
pub(crate) fn is_yes(line: &str) -> bool {
    matches!(line.trim().to_lowercase().as_str(), "y" | "yes")
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
            format!(", a always (`{}`)", save.join("`, `"))
        }
        Ask::Permission { .. } | Ask::Question { .. } => String::new(),
    };
    format!(
        "allow {}?\n  y yes{always}, n stops here; n TEXT goes on with TEXT:",
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

/// Returns the labels that a person's line chooses, or the line as an answer of its own.
///
/// # Errors
/// The fault of a line that answers nothing: an empty one, or numbers that are not there.
fn choose_labels(asked: &Question, line: &str) -> Result<Vec<String>, String> {
    if line.is_empty() {
        return Err("an answer is needed here".to_owned());
    }
    let words = || line.split([',', ' ']).filter(|word| !word.is_empty());
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    if asked.options.is_empty() || !words().all(is_number) {
        return Ok(vec![line.to_owned()]);
    }
    if let Some(option) = asked.options.iter().find(|option| option.label.trim() == line)
        && find_option(asked, line).is_none()
    {
        return Ok(vec![option.label.clone()]);
    }
    let mut labels: Vec<String> = Vec::new();
    for word in words() {
        let label = find_option(asked, word).ok_or_else(|| format!("there is no {word}"))?;
        if !labels.contains(label) {
            labels.push(label.clone());
        }
    }
    match labels.len() {
        0 => Err("a number is needed here".to_owned()),
        1 => Ok(labels),
        _ if asked.multiple => Ok(labels),
        _ => Err("only one of them can be chosen".to_owned()),
    }
}

/// Returns the label that a number names.
fn find_option<'q>(asked: &'q Question, number: &str) -> Option<&'q String> {
    let at = number.parse::<usize>().ok()?.checked_sub(1)?;
    asked.options.get(at).map(|option| &option.label)
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

    // Finding trial-3 4: `YES` and `?` were refusals that the model was told.
    #[test]
    fn a_person_answers_in_any_case_or_is_asked_again() {
        let mut asks = Asks::new(None);
        asks.observe(&asked(1, push()));
        let shown = "allow shell `git push`?\n  y yes, a always (`git push *`), n stops here; n TEXT goes on with TEXT:";
        assert_eq!(asks.step(), Step::Show(shown.into()));
        assert!(asks.is_shown());
        for yes in ["y", " y ", "Y", "YES", "Yes", "yes.", "once"] {
            assert_eq!(sent(asks.take(yes)), json!({ "reply": "once" }), "{yes}");
        }
        for always in ["a", "Always", " ALWAYS "] {
            assert_eq!(sent(asks.take(always)), json!({ "reply": "always" }), "{always}");
        }
        for no in ["n", "NO", "No!"] {
            assert_eq!(sent(asks.take(no)), json!({ "reply": "reject" }), "{no}");
        }
        for words in
            ["n open a pull request", "No,  open a pull request", "no: open a pull request "]
        {
            let told = json!({ "reply": "reject", "message": "open a pull request" });
            assert_eq!(sent(asks.take(words)), told, "{words}");
        }
        for other in
            ["", "  ", "?", "help", "open a pull request", "now", "yes but first test", "ja"]
        {
            assert_eq!(asks.take(other), Step::Show(shown.into()), "{other:?}");
        }
        assert!(asks.is_shown(), "it still waits");
    }

    // Heldout-3: a model that polls was cut off, and the run ended with exit code 1.
    #[test]
    fn a_circle_is_told_to_the_model_and_fails_no_run() {
        let circle = || {
            let (action, resources) = ("doom_loop".to_owned(), vec!["shell".to_owned()]);
            Ask::Permission { action, resources, save: Vec::new() }
        };
        let mut asks = Asks::new(Some(AskPolicy::Reject));
        asks.observe(&asked(1, circle()));
        assert_eq!(sent(asks.step()), json!({ "reply": "reject", "message": IN_A_CIRCLE }));
        assert_eq!(asks.refused(), [] as [String; 0]);
        for (policy, is_asked) in [(None, true), (Some(AskPolicy::Allow), false)] {
            let mut asks = Asks::new(policy);
            asks.observe(&asked(1, circle()));
            assert_eq!(matches!(asks.step(), Step::Show(_)), is_asked);
        }
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

    // Finding trial-3 26: Enter became "no answer" and `7` became "7", with no way back.
    #[test]
    fn an_answer_that_is_not_there_asks_again() {
        let option =
            |label: &str| QuestionOption { label: label.into(), description: String::new() };
        let one = Question {
            question: "How many?".into(),
            header: "Many".into(),
            options: vec![option("two"), option("16")],
            multiple: false,
        };
        let many = Question { multiple: true, ..one.clone() };
        let free = Question { options: Vec::new(), ..one.clone() };
        let faulty = |asked: &Question, lines: &[&str]| {
            for line in lines {
                assert!(choose_labels(asked, line).is_err(), "{line:?} of {asked:?}");
            }
        };
        faulty(&one, &["", "0", "3", "7", "1,2", "1 2", ",", "99999999999999999999999"]);
        faulty(&many, &["", "0", "1,3", "3"]);
        faulty(&free, &[""]);
        for (asked, line, chosen) in [
            (&one, "2", vec!["16"]),
            (&one, "16", vec!["16"]),
            (&one, "1,1", vec!["two"]),
            (&one, "7 of them", vec!["7 of them"]),
            (&many, "2 1", vec!["16", "two"]),
            (&free, "7", vec!["7"]),
        ] {
            assert_eq!(choose_labels(asked, line).expect(line), chosen, "{line}");
        }
        let mut asks = Asks::new(None);
        asks.observe(&asked(1, Ask::Question { questions: vec![one, free] }));
        assert!(matches!(asks.step(), Step::Show(_)));
        let again = "there is no 7\nHow many?\n  1 two\n  2 16\n  a number, or other words:";
        assert_eq!(asks.take("7"), Step::Show(again.into()));
        assert_eq!(asks.take("1"), Step::Show("How many?\n  your answer:".into()));
        assert!(matches!(asks.take(""), Step::Show(_)), "the second one, again");
        assert_eq!(sent(asks.take("many")), json!({ "answers": [["two"], ["many"]] }));
    }
}
