//! Calls that a model makes again and again.

use domain::ToolIntent;

use super::History;

impl History {
    /// Returns how many calls of the same step directly before this one are the same: the tool and every byte of the
    /// arguments. Any other call ends the row. At most `limit` are counted. A model that makes the same call in its next step
    /// has seen the result, as one that polls.
    #[must_use]
    pub fn repeats(&self, intent: &ToolIntent, limit: usize) -> usize {
        let open = self.open_turn().into_iter().flat_map(|open| &open.calls);
        let before: Vec<_> = open.take_while(|(id, _)| *id != intent.call).collect();
        let calls =
            before.iter().rev().map(|(_, call)| (&call.intent.tool, &call.intent.arguments));
        let same = (&intent.tool, &intent.arguments);
        calls.take(limit).take_while(|call| *call == same).count()
    }
}
