//! Finds the current question in a history: the prompt, the tool rounds since, and their results.

use std::borrow::Cow;

use crate::aside::{self, Aside};
use crate::phrase::{self, Ask};
use crate::request::{Message, Request, Role};

/// The most tool results that an answer quotes; the latest ones.
const MAX_RESULTS: usize = 8;

/// A history, read for the simulated model.
pub(crate) struct Conversation<'a> {
    messages: &'a [Message<'a>],
    /// The user message to answer.
    pub(crate) prompt: Cow<'a, str>,
    /// The very last user message, which may be a notice. Scripts also match it.
    last_user: Cow<'a, str>,
    last_user_at: usize,
    prompt_at: usize,
    /// Set if the request is outside the conversation.
    pub(crate) aside: Option<Aside>,
    /// The plain request in the prompt, if it is one.
    pub(crate) ask: Option<Ask>,
}

impl<'a> Conversation<'a> {
    /// Reads backwards, so that a long history costs no more than a short one.
    pub(crate) fn read(request: &'a Request<'a>) -> Self {
        let messages = request.messages.as_slice();
        let (last_user_at, last_user) = messages
            .iter()
            .enumerate()
            .rfind(|(_, message)| message.role == Role::User)
            .map_or((0, Cow::Borrowed("")), |(at, message)| (at, message.content.joined()));
        let aside = aside::recognise(&last_user);
        let found = if aside.is_some() {
            Some((last_user_at, last_user.clone(), None))
        } else {
            find_prompt(messages)
        };
        let (prompt_at, prompt, ask) = found.unwrap_or_else(|| {
            let ask = phrase::recognise(&last_user);
            (last_user_at, last_user.clone(), ask)
        });
        Self { messages, prompt, last_user, last_user_at, prompt_at, aside, ask }
    }

    /// Returns the tool rounds since the prompt: assistant messages that called tools.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds_after(self.prompt_at)
    }

    /// Returns whether a script with this `needle`, and this round if it has one, matches.
    pub(crate) fn matches(&self, needle: &str, round: Option<u32>) -> bool {
        if self.aside.is_some_and(|aside| !aside.is_named_by(needle)) {
            return false;
        }
        let fits = |text: &str, at| {
            text.contains(needle) && round.is_none_or(|round| round == self.rounds_after(at))
        };
        fits(&self.prompt, self.prompt_at) || fits(&self.last_user, self.last_user_at)
    }

    /// Returns the last prompt before a request outside the conversation.
    pub(crate) fn asked_before(&self) -> Option<Cow<'a, str>> {
        let earlier = self.messages.get(..self.last_user_at).unwrap_or_default();
        let users = earlier.iter().rev().filter(|message| message.role == Role::User);
        users
            .map(|message| message.content.joined())
            .find(|text| !is_notice(text) && aside::recognise(text).is_none())
    }

    /// Returns the latest tool results since the prompt, in order, each with its tool's name.
    pub(crate) fn results(&self) -> Vec<(&str, Cow<'_, str>)> {
        let since = self.since(self.prompt_at);
        let mut results: Vec<_> = since
            .iter()
            .rev()
            .filter(|message| message.role == Role::Tool)
            .take(MAX_RESULTS)
            .map(|message| (tool_name(since, message), message.content.joined()))
            .collect();
        results.reverse();
        results
    }

    fn since(&self, at: usize) -> &'a [Message<'a>] {
        self.messages.get(at + 1..).unwrap_or_default()
    }

    fn rounds_after(&self, at: usize) -> u32 {
        let rounds = self.since(at).iter().filter(|message| !message.calls.is_empty()).count();
        u32::try_from(rounds).unwrap_or(u32::MAX)
    }
}

/// Finds the last user message that is a plain request, unless a newer exchange replaces it: the old request ended
/// with an answer without tool calls, and something else was asked since. `None` if there are only notices.
fn find_prompt<'a>(messages: &'a [Message<'a>]) -> Option<(usize, Cow<'a, str>, Option<Ask>)> {
    let mut newest_other = None;
    for (at, message) in messages.iter().enumerate().rev() {
        match message.role {
            Role::User => {
                let text = message.content.joined();
                if is_notice(&text) {
                    continue;
                }
                if let Some(ask) = recognise_any(message, &text) {
                    return Some((at, text, Some(ask)));
                }
                newest_other.get_or_insert((at, text, None));
            }
            Role::Assistant if message.calls.is_empty() && newest_other.is_some() => break,
            Role::Assistant | Role::System | Role::Developer | Role::Tool => {}
        }
    }
    newest_other
}

/// Recognises the whole text, or the last of its parts that is a plain request: clients add reminders and files as
/// their own parts.
fn recognise_any(message: &Message<'_>, joined: &str) -> Option<Ask> {
    let parts = message.content.0.as_slice();
    let of_parts = || parts.iter().rev().find_map(|part| phrase::recognise(part));
    if parts.len() > 1 { of_parts() } else { phrase::recognise(joined) }
}

/// Returns whether a user message was written by a service: about a step limit or a recovery, or in place of a
/// summarised part.
fn is_notice(text: &str) -> bool {
    let text = text.trim_start();
    ["<notice>", "<system-update>", "<conversation-checkpoint>", "["]
        .iter()
        .any(|start| text.starts_with(start))
}

fn tool_name<'a>(since: &'a [Message<'a>], result: &Message<'_>) -> &'a str {
    since
        .iter()
        .flat_map(|message| &message.calls)
        .rfind(|call| Some(&call.id) == result.tool_call_id.as_ref())
        .map_or("tool", |call| call.name.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::chat;

    fn check(messages: &str, prompt: &str, rounds: u32) {
        let body = format!(r#"{{"messages":[{messages}]}}"#);
        let request = chat::parse(body.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        let conversation = Conversation::read(&request);
        assert_eq!((conversation.prompt.as_ref(), conversation.rounds()), (prompt, rounds));
    }

    const SAY: &str = r#"{"role":"user","content":"say 3 words"}"#;
    const CALL: &str = r#"{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"read"}}]},
        {"role":"tool","tool_call_id":"c","content":"text"}"#;

    #[test]
    fn notices_and_system_messages_do_not_hide_the_prompt() {
        check(
            &format!(
                r#"{SAY},{CALL},{{"role":"system","content":"run x"}},
                {{"role":"user","content":"<notice>run y</notice>"}},{{"role":"user","content":"[run z]"}}"#
            ),
            "say 3 words",
            1,
        );
    }

    #[test]
    fn joined_user_messages_are_taken_apart() {
        let update = "<system-update>\\n\\nrun x\\n</system-update>";
        let user = |text: &str| format!(r#"{{"role":"user","content":"{text}"}}"#);
        check(&user(&format!("say 3 words\\n\\n{update}")), "say 3 words", 0);
        check(&user(&format!("{update}\\n\\nsay 3 words")), "say 3 words", 0);
        let asked = user("say 3 words\\n\\n<summary-request>\\nsum up\\n</summary-request>");
        let body = format!(r#"{{"messages":[{asked}]}}"#);
        let request = chat::parse(body.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        let conversation = Conversation::read(&request);
        assert_eq!(conversation.aside, Some(Aside::Summary));
        assert_eq!(conversation.asked_before().as_deref(), Some("say 3 words"));
    }

    #[test]
    fn a_request_beside_the_conversation_is_no_prompt_of_it() {
        let checkpoint = r#"{"role":"user","content":"<conversation-checkpoint>run x"}"#;
        check(&format!("{checkpoint},{SAY},{CALL}"), "say 3 words", 1);
        let summary = r#"{"role":"user","content":"<summary-request>"}"#;
        let body = format!(r#"{{"messages":[{checkpoint},{SAY},{CALL},{summary}]}}"#);
        let request = chat::parse(body.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        let conversation = Conversation::read(&request);
        assert_eq!(conversation.aside, Some(Aside::Summary));
        assert_eq!(conversation.asked_before().as_deref(), Some("say 3 words"));
        assert!(!conversation.matches("say", None) && !conversation.matches("", None));
        assert!(conversation.matches("<summary-request>", Some(0)));
    }

    #[test]
    fn a_steer_that_is_no_request_does_not_hide_it_but_a_new_exchange_does() {
        let other = r#"{"role":"user","content":"hello"}"#;
        let answer = r#"{"role":"assistant","content":"w0 w1 w2"}"#;
        check(&format!("{SAY},{CALL},{other}"), "say 3 words", 1);
        check(&format!("{SAY},{answer},{other}"), "hello", 0);
        check(&format!("{SAY},{answer},{other},{CALL}"), "hello", 1);
        check(r#"{"role":"user","content":"[only a notice]"}"#, "[only a notice]", 0);
        check(r#"{"role":"system","content":"x"}"#, "", 0);
    }
}
