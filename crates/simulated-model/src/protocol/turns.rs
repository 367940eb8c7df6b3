//! Builds a history from protocols other than chat, and checks that calls and results come in pairs.

use std::borrow::Cow;

use crate::protocol::json::owned;
use crate::request::{Content, MadeCall, Message, Role};

#[derive(Default)]
pub(super) struct Turns(Vec<Message<'static>>);

impl Turns {
    /// Adds a user's text. Each text is its own message, since some protocols join adjacent ones.
    pub(super) fn user(&mut self, text: &str) {
        self.0.push(Message::new(Role::User, Content(vec![owned(text)])));
    }

    /// Adds instructions.
    pub(super) fn system(&mut self, content: Content<'static>) {
        self.0.push(Message::new(Role::System, content));
    }

    /// Returns the model's message at the end. Adds one if the last message is not the model's.
    pub(super) fn assistant(&mut self) -> &mut Message<'static> {
        if self.0.last().is_none_or(|last| last.role != Role::Assistant) {
            self.0.push(Message::new(Role::Assistant, Content::default()));
        }
        self.0.last_mut().expect("one was just pushed")
    }

    /// Adds a call of the model.
    pub(super) fn call(&mut self, id: &str, name: &str) {
        self.assistant().calls.push(MadeCall { id: owned(id), name: owned(name) });
    }

    /// Adds the result of a call.
    pub(super) fn result(&mut self, id: &str, content: Content<'static>) {
        let tool_call_id = Some(owned(id));
        self.0.push(Message { tool_call_id, ..Message::new(Role::Tool, content) });
    }

    /// Returns the first call of `name` in the model's last message that has no result yet.
    pub(super) fn waiting(&self, name: &str) -> Option<String> {
        let at = self.0.iter().rposition(|said| said.role == Role::Assistant)?;
        let answered: Vec<_> =
            self.0[at..].iter().filter_map(|said| said.tool_call_id.as_deref()).collect();
        let calls = self.0[at].calls.iter();
        let mut open = calls.filter(|call| call.name == name && !answered.contains(&&*call.id));
        open.next().map(|call| call.id.to_string())
    }

    /// Returns the history. Like the providers, it requires exactly one result per call, before the model says
    /// anything else.
    pub(super) fn finish(self) -> Result<Vec<Message<'static>>, String> {
        let mut open: Vec<Cow<'static, str>> = Vec::new();
        for message in &self.0 {
            match message.role {
                Role::Assistant => {
                    unanswered(&open)?;
                    open = message.calls.iter().map(|call| call.id.clone()).collect();
                }
                Role::Tool => {
                    let id = message.tool_call_id.as_deref().unwrap_or_default();
                    let at = open.iter().position(|open| open == id);
                    let at = at.ok_or_else(|| format!("a result is of no open call: `{id}`"))?;
                    open.remove(at);
                }
                Role::System | Role::Developer | Role::User => {}
            }
        }
        unanswered(&open)?;
        Ok(self.0)
    }
}

fn unanswered(open: &[Cow<'static, str>]) -> Result<(), String> {
    match open.first() {
        Some(id) => Err(format!("the call `{id}` has no result: send one before the next answer")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_results_go_in_pairs() {
        let mut turns = Turns::default();
        turns.user("x");
        turns.call("a", "read");
        turns.call("b", "read");
        turns.result("b", Content::default());
        assert_eq!(turns.waiting("read").as_deref(), Some("a"));
        turns.result("a", Content::default());
        assert_eq!(turns.waiting("read"), None);
        assert_eq!(turns.finish().map(|said| said.len()), Ok(4));
        let mut open = Turns::default();
        open.call("a", "read");
        assert!(open.finish().is_err_and(|problem| problem.contains("`a` has no result")));
        let mut stray = Turns::default();
        stray.user("x");
        stray.result("a", Content::default());
        assert!(stray.finish().is_err_and(|problem| problem.contains("no open call")));
    }
}
