//! The plain behaviour: derives the next answer from the request and the steps already done. Pure.

use serde_json::json;

use crate::answer::{Draft, DraftCall, prose, words};
use crate::aside::{self, Aside};
use crate::conversation::Conversation;
use crate::phrase::{Action, Ask, Call};
use crate::request::Request;

/// The most characters of a tool result that an answer quotes.
const QUOTED_CHARS: usize = 200;

/// Files that show how a project is tested. The first one that is seen decides.
const TEST_COMMANDS: &[(&str, &str)] = &[
    ("Cargo.toml", "cargo test 2>&1 | tail -n 40"),
    ("package.json", "npm test 2>&1 | tail -n 40"),
    ("go.mod", "go test ./... 2>&1 | tail -n 40"),
    ("pyproject.toml", "python3 -m pytest -q 2>&1 | tail -n 40"),
    ("setup.py", "python3 -m pytest -q 2>&1 | tail -n 40"),
    ("Makefile", "make test 2>&1 | tail -n 40"),
];

const HELP: &str = "This is the simulated model of OpenCode Cloud: a small deterministic program, \
not a language model. It understands: list the files [in X] · read X · run Y · create X containing \
Y · edit X replacing A with B · search for X · say N words · fix the failing test. Join steps with \
\" then \", and parallel tool calls with \" and also \".";

/// Returns the next answer to a conversation without a script.
pub(crate) fn next(request: &Request<'_>, conversation: &Conversation<'_>) -> Draft {
    match conversation.aside {
        Some(Aside::Summary) => return aside::summary(conversation.asked_before().as_deref()),
        Some(Aside::Title) => return aside::title(&conversation.prompt),
        None => {}
    }
    match &conversation.ask {
        Some(Ask::Steps(steps)) => step(steps, request, conversation),
        Some(Ask::FixTheTest) => fix_the_test(request, conversation),
        None if conversation.rounds() > 0 => quote_results(conversation),
        None => text(HELP),
    }
}

/// The words and calls of one answer.
#[derive(Default)]
struct Turn<'a> {
    words: Vec<u32>,
    calls: Vec<&'a Call>,
}

/// Groups steps into answers. An answer without calls ends the drain, so words in between go with the next step's
/// calls.
fn turns(steps: &[Vec<Action>]) -> Vec<Turn<'_>> {
    let mut turns = Vec::new();
    let mut turn = Turn::default();
    for action_list in steps {
        for action in action_list {
            match action {
                Action::Say(count) => turn.words.push(*count),
                Action::Call(call) => turn.calls.push(call),
            }
        }
        if !turn.calls.is_empty() {
            turns.push(std::mem::take(&mut turn));
        }
    }
    if !turn.words.is_empty() {
        turns.push(turn);
    }
    turns
}

fn step(steps: &[Vec<Action>], request: &Request<'_>, conversation: &Conversation<'_>) -> Draft {
    let turns = turns(steps);
    let done = usize::try_from(conversation.rounds()).unwrap_or(usize::MAX);
    let Some(turn) = turns.get(done) else {
        return quote_results(conversation);
    };
    let mut draft = Draft::default();
    for (index, count) in turn.words.iter().enumerate() {
        if index > 0 {
            draft.text.push("\n".to_owned());
        }
        draft.text.extend(words(*count));
    }
    add_calls(&mut draft, &turn.calls, request);
    draft
}

/// Adds the calls that the request allows, and mentions the others.
fn add_calls(draft: &mut Draft, calls: &[&Call], request: &Request<'_>) {
    for call in calls {
        if request.may_call(call.tool) {
            draft.calls.push(DraftCall {
                name: call.tool.to_owned(),
                arguments: call.arguments.to_string(),
                id: None,
            });
        } else {
            let note = format!(
                "The simulated model would call the tool `{}` for this, but this request does not \
                 allow it (it is not in `tools`, or `tool_choice` rules it out). ",
                call.tool
            );
            draft.text.extend(prose(&note));
        }
    }
}

fn fix_the_test(request: &Request<'_>, conversation: &Conversation<'_>) -> Draft {
    let results = conversation.results();
    let (say, command) = match conversation.rounds() {
        0 => ("I am the simulated model. First I look at what is here.", "ls"),
        1 => {
            let seen = results.last().map_or("", |(_, result)| result.as_ref());
            let known = TEST_COMMANDS.iter().find(|(file, _)| seen.contains(file));
            let Some((_, command)) = known else {
                return quoting(
                    "I see no project file that tells how its tests are run. A real model would \
                     look further; the simulated model stops here.",
                    conversation,
                );
            };
            ("Now I run the tests.", *command)
        }
        _ => {
            return quoting(
                "I ran the tests. The simulated model cannot fix code: set OPENAI_API_KEY or \
                 --model-url for a real model that can.",
                conversation,
            );
        }
    };
    let mut draft = text(say);
    add_calls(&mut draft, &[&Call::new("shell", json!({ "command": command }))], request);
    draft
}

fn quote_results(conversation: &Conversation<'_>) -> Draft {
    quoting("Done, says the simulated model.", conversation)
}

fn quoting(say: &str, conversation: &Conversation<'_>) -> Draft {
    let mut answer = say.to_owned();
    for (tool, result) in conversation.results() {
        let start: String = result.chars().take(QUOTED_CHARS).collect();
        let more = if start.len() < result.len() { " …" } else { "" };
        answer.push_str(&format!("\n\n{tool}: {start}{more}"));
    }
    text(&answer)
}

fn text(text: &str) -> Draft {
    Draft { text: prose(text), ..Draft::default() }
}
