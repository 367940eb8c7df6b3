//! A session's title, made from its first prompt by a request beside the turn that answers it.
//!
//! It may fail, and is tried again at the next promotion. A title that somebody gives wins, however late it comes.

use domain::{
    AttemptEnded, AttemptId, AttemptOutcome, ErrorCode, ModelRef, SessionError, SessionRenamed,
    SideOutcome, TitleEnded, TitleStarted, TitledBy, TurnId,
};
use history::Components;
use llm_protocol::openai_chat::THOUGHT_TAGS;
use llm_protocol::{Part, ToolChoice};
use serde_json::Value;

use crate::begin::first_attempt;
use crate::boundary::{Next, TurnPlan};
use crate::draft::{Draft, Verdict};
use crate::estimate;
use crate::limits::fit_answer;
use crate::observed::Observation;
use crate::rules::Rules;
use crate::said::Said;
use crate::settle::used;
use crate::texts;

/// The most characters of a title.
const BOUND: usize = 100;

/// The result of a title's request.
#[derive(Debug)]
pub struct Titled {
    /// Its attempt.
    pub attempt: AttemptId,
    /// The answer so far.
    pub said: Said,
    /// The reason why it is incomplete.
    pub error: Option<SessionError>,
}

impl Rules<'_> {
    /// Drafts a title and its request, if the turn that begins is the first after a promotion and the session has no
    /// title.
    pub(crate) fn start_title(
        &self,
        draft: &mut Draft<'_>,
        step: i32,
        model: &ModelRef,
    ) -> Option<Box<TurnPlan>> {
        let history = draft.history();
        let wanted = self.settings.titles
            && step == 1
            && (!history.is_titled() || mutated!(TitleOfTheNamed))
            && !history.is_child()
            && history.titling().is_none();
        let (message, at) = history.first_prompt().filter(|_| wanted)?;
        // Without a variant, because a title needs no long reasoning.
        let plain = ModelRef { variant: None, ..model.clone() };
        let resolved = self.models.resolve(Some(&plain)).ok()?;
        let (message, prompt) = (message.clone(), history.conversation().messages().get(at)?);
        let texts = prompt.content.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.text.as_str()),
            Part::Reasoning(_) | Part::Media(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
        });
        let prompt = texts::title(&texts.collect::<Vec<_>>().join("\n"));
        let asks = estimate::text(&prompt) + estimate::text(texts::TITLE_SYSTEM);
        let agent = history.agent().to_owned();
        let turn = TurnId::mint(draft.mint());
        draft.push(TitleStarted {
            turn: turn.clone(),
            message: message.clone(),
            agent,
            model: resolved.reference.clone(),
            system: texts::TITLE_SYSTEM.to_owned(),
            prompt,
        });
        let components = Components {
            agent: String::new(),
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            generation: fit_answer(&resolved.generation, &resolved.entry, || asks),
            options: resolved.options.clone(),
            model: resolved.entry.clone(),
        };
        let pricing = resolved.pricing(|| asks);
        let (started, body) = first_attempt(draft, &turn, &components, pricing);
        Some(Box::new(TurnPlan {
            turn,
            message,
            started,
            model: resolved.reference,
            components,
            body,
            title: None,
        }))
    }

    /// Adds the result of the title's request to any write.
    pub fn title_ended(&self, draft: &mut Draft<'_>, done: &Titled) {
        let Some(open) = draft.history().titling().cloned() else { return };
        if open.started.turn != done.said.turn {
            return;
        }
        let title = read_title(&done.said.reply.text_so_far());
        let error = done.error.clone().or_else(|| {
            title.is_none().then(|| SessionError {
                code: ErrorCode::ProviderInvalidOutput.into(),
                message: "the model answered without a title".into(),
            })
        });
        let (attempt, outcome) = match error {
            None => (AttemptOutcome::Completed, SideOutcome::Completed),
            Some(_) => (AttemptOutcome::Failed, SideOutcome::Failed),
        };
        draft.push(AttemptEnded {
            attempt: done.attempt.clone(),
            turn: open.started.turn.clone(),
            outcome: attempt,
            usage: used(open.pricing.as_deref(), done.said.usage),
            error: error.clone(),
        });
        let named = draft.history().is_titled() && !mutated!(TitleOverwrites);
        if let Some(title) = title.filter(|_| error.is_none() && !named) {
            draft.push(SessionRenamed { title, by: TitledBy::Model });
        }
        end_title(draft, outcome, error);
    }

    /// Ends the wait for the title: it is lost, and the drain ends or continues.
    pub fn title_waited(&self, draft: &mut Draft<'_>, observed: &Observation) -> Verdict<Next> {
        lose_title(draft);
        self.cross(draft, false, observed)
    }
}

/// Settles a title in progress. Its request may still be answered, but nobody reads that.
pub(crate) fn lose_title(draft: &mut Draft<'_>) {
    if mutated!(TitleLeftOpen) {
        return;
    }
    let Some(open) = draft.history().titling().cloned() else { return };
    if let Some(attempt) = open.attempt {
        draft.push(AttemptEnded {
            attempt,
            turn: open.started.turn.clone(),
            outcome: AttemptOutcome::Lost,
            usage: None,
            error: None,
        });
    }
    end_title(draft, SideOutcome::Lost, None);
}

fn end_title(draft: &mut Draft<'_>, outcome: SideOutcome, error: Option<SessionError>) {
    let Some(open) = draft.history().titling() else { return };
    let (turn, usage) = (open.started.turn.clone(), open.usage);
    draft.push(TitleEnded { turn, outcome, usage, error });
}

/// The marks that models put around a title.
const MARKS: [(&str, &str); 9] = [
    ("**", "**"),
    ("__", "__"),
    ("*", "*"),
    ("_", "_"),
    ("`", "`"),
    ("\"", "\""),
    ("'", "'"),
    ("\u{201c}", "\u{201d}"),
    ("\u{ab}", "\u{bb}"),
];

/// Returns the title in an answer: its first line that says anything, without thoughts, a label, and marks around it; or
/// the title that it holds between tags or as JSON.
fn read_title(text: &str) -> Option<String> {
    let answer = without_thoughts(text);
    let answer = between_tags(answer).unwrap_or(answer);
    let named = titled_json(answer);
    let answer = named.as_deref().unwrap_or(answer);
    let line = answer.lines().map(bare_line).find(|line| !line.is_empty())?;
    Some(line.chars().take(BOUND).collect::<String>().trim_end().to_owned())
}

/// Returns the text after its thoughts; nothing if they do not end.
fn without_thoughts(text: &str) -> &str {
    for (begin, end) in THOUGHT_TAGS {
        if let Some((_, answer)) = text.rsplit_once(end) {
            return answer;
        }
        if text.trim_start().starts_with(begin) {
            return "";
        }
    }
    text
}

/// Returns the text between tags of a title that begin a line.
fn between_tags(text: &str) -> Option<&str> {
    let (before, rest) = text.split_once("<title>")?;
    let begins_line = before.trim_end_matches(' ').chars().next_back().is_none_or(|c| c == '\n');
    let (title, _) = rest.split_once("</title>").filter(|_| begins_line)?;
    (!title.trim().is_empty()).then_some(title)
}

/// Returns the title in an object of JSON, whatever stands around the object.
fn titled_json(text: &str) -> Option<String> {
    let object = text.get(text.find('{')?..=text.rfind('}')?)?;
    let value: Value = serde_json::from_str(object).ok()?;
    let title = value.get("title")?.as_str()?;
    (!title.trim().is_empty()).then(|| title.to_owned())
}

/// Returns whether a line begins or ends a block of code: three marks, and no more than its language after them.
fn is_fence(line: &str) -> bool {
    line.strip_prefix("```").is_some_and(|label| label.chars().all(char::is_alphanumeric))
}

/// Returns a line without the marks and the label of a title; nothing if it has only marks.
fn bare_line(line: &str) -> &str {
    let mut line = line.trim();
    if is_fence(line) {
        return "";
    }
    loop {
        let heading = line.trim_start_matches('#').trim_start();
        let bare = without_label(without_marks(heading).trim()).trim();
        if bare == line {
            break;
        }
        line = bare;
    }
    let is_mark = |letter: char| "`*_#-=~\"'".contains(letter);
    if line.chars().all(is_mark) { "" } else { line }
}

/// Returns a line without `Title:` at its beginning, in bold or not.
fn without_label(line: &str) -> &str {
    let is_bold = |letter: char| matches!(letter, '*' | '_');
    let start = line.trim_start_matches(is_bold);
    let label = start.get(..5).filter(|word| word.eq_ignore_ascii_case("title"));
    let rest = label.and_then(|_| start.get(5..)).map(|rest| rest.trim_start_matches(is_bold));
    match rest.and_then(|rest| rest.trim_start().strip_prefix(':')) {
        // The end of a bold label, and not the beginning of a bold title.
        Some(rest) if start.len() < line.len() => rest.trim_start_matches(is_bold),
        Some(rest) => rest,
        None => line,
    }
}

/// Returns a line without one pair of marks around the whole of it.
fn without_marks(line: &str) -> &str {
    let inner = MARKS.into_iter().find_map(|(begin, end)| {
        let inner = line.strip_prefix(begin)?.strip_suffix(end)?;
        (!inner.contains(begin) && !inner.contains(end)).then_some(inner)
    });
    inner.unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_the_first_line_that_says_anything() {
        assert_eq!(read_title("\n  \n Fix the parser \nmore"), Some("Fix the parser".into()));
        assert_eq!(read_title(" \n\t"), None);
        assert_eq!(read_title(&"é".repeat(300)).map(|title| title.chars().count()), Some(100));
    }

    // Finding next report 25: titles were `<think>`, and had quotes, marks and a label.
    #[test]
    fn a_title_has_no_thoughts_label_and_marks() {
        for text in [
            "<think>\nThe user\nwants …\n</think>\n\nFix parser",
            "The user wants …\n</think>\nFix parser",
            "\"Fix parser\"",
            "\u{201c}Fix parser\u{201d}",
            "**Title:** Fix parser",
            "**Title: Fix parser**",
            "Title: \"Fix parser\"",
            "TITLE:\n# Fix parser",
            "## **Fix parser**",
            "```\nFix parser\n```",
        ] {
            assert_eq!(read_title(text).as_deref(), Some("Fix parser"), "{text}");
        }
        // Finding: report 30-a18 (damianvtran/local-operator#281).
        for text in [
            "<title>Fix parser</title>",
            "Here it is:\n<title>\n**Fix parser**\n</title>\n",
            r#"{"title": "Fix parser"}"#,
            "```json\n{\"title\": \"Fix parser\"}\n```",
            "Here it is: {\"title\": \"Fix parser\"}",
            "```text\nFix parser\n```",
            "<reasoning>The user\nwants …</reasoning>\nFix parser",
            "[THINK]The user wants …[/THINK]Fix parser",
        ] {
            assert_eq!(read_title(text).as_deref(), Some("Fix parser"), "{text}");
        }
        for text in ["Add a <title>x</title>", "Parse {\"a\": 1}", "Use {title}"] {
            assert_eq!(read_title(text).as_deref(), Some(text));
        }
        for text in ["Fix `parse`", "`a` and `b`", "Titles of books", "_init_ and 'x'", "Don't"] {
            assert_eq!(read_title(text).as_deref(), Some(text));
        }
        for text in ["<think>\nThe user wants", "<think>a</think>\n ", "**", "Title:"] {
            assert_eq!(read_title(text), None, "{text}");
        }
    }
}
