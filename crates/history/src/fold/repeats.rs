//! Calls that a model makes again and again.

use domain::ToolIntent;
use llm_protocol::{Part, Role};

use super::History;

impl History {
    /// Returns how many calls directly before this one are the same: the tool and every byte of the arguments. A message of a
    /// person, or any other call, ends the row. At most `limit` are counted.
    #[must_use]
    pub fn repeats(&self, intent: &ToolIntent, limit: usize) -> usize {
        let open = self.open_turn().into_iter().flat_map(|open| &open.calls);
        let before: Vec<_> = open.take_while(|(id, _)| *id != intent.call).collect();
        let of_turn =
            before.iter().rev().map(|(_, call)| (&call.intent.tool, &call.intent.arguments));
        let messages = self.conversation.messages.iter().enumerate().rev();
        let shown = messages
            .filter(|(at, _)| !self.state.view.is_reverted(*at))
            .map(|(_, message)| message);
        let own = shown.take_while(|message| message.role != Role::User);
        let parts = own.flat_map(|message| message.content.iter().rev());
        let earlier = parts.filter_map(|part| match part {
            Part::ToolCall(call) if !call.provider_executed => Some((&call.name, &call.arguments)),
            Part::ToolCall(_)
            | Part::Text(_)
            | Part::Reasoning(_)
            | Part::Media(_)
            | Part::ToolResult(_) => None,
        });
        let same = (&intent.tool, &intent.arguments);
        of_turn.chain(earlier).take(limit).take_while(|call| *call == same).count()
    }
}
