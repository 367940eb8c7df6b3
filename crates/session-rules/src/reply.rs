use domain::{CallId, PartId, ReplyPart};
use llm_protocol::{RawJson, ToolCall, ToolContent, ToolResult, truncate};

/// The most bytes of a hosted call's result that other providers get. Its own provider gets all of it, in its own
/// form.
const HOSTED_OUTPUT: usize = 51_200;

/// The text for a hosted call without a result.
const NO_RESULT: &str =
    "The provider ran this call and did not say what came of it (tool.result-missing).";

/// The reply of one attempt so far. Pure: ids come from the caller.
#[derive(Debug, Default)]
pub struct Reply {
    parts: Vec<ReplyPart>,
    /// The number of checkpointed bytes of each text part, by its index.
    kept: Vec<usize>,
    /// Hosted calls without a result yet, and the parts for their results.
    unanswered: Vec<(String, PartId)>,
}

impl Reply {
    /// Adds text to the part `id`, which is the last one or new.
    pub fn text(&mut self, id: &PartId, text: &str) {
        match self.parts.last_mut() {
            Some(ReplyPart::Text { id: last, text: so_far, .. }) if last == id => {
                so_far.push_str(text);
            }
            _ => self.push(ReplyPart::text(id.clone(), text)),
        }
    }

    /// Adds reasoning to the part `id`, which is the last one or new.
    pub fn reasoning(&mut self, id: &PartId, text: &str) {
        match self.parts.last_mut() {
            Some(ReplyPart::Reasoning { id: last, text: so_far, .. }) if last == id => {
                so_far.push_str(text);
            }
            _ => self.push(ReplyPart::reasoning(id.clone(), text)),
        }
    }

    /// Stores the provider state of the text `id`, which may have no text.
    pub fn end_text(&mut self, id: &PartId, state: &RawJson) {
        self.end(ReplyPart::text(id.clone(), ""), state);
    }

    /// Stores the provider state of reasoning. Without text it stands for reasoning that is not shown.
    pub fn end_reasoning(&mut self, id: &PartId, state: &RawJson) {
        self.end(ReplyPart::reasoning(id.clone(), ""), state);
    }

    fn end(&mut self, empty: ReplyPart, state: &RawJson) {
        let known = self.parts.iter().rposition(|part| text_id(part) == text_id(&empty));
        let at = known.unwrap_or_else(|| {
            self.push(empty);
            self.parts.len() - 1
        });
        if let ReplyPart::Text { metadata, .. } | ReplyPart::Reasoning { metadata, .. } =
            &mut self.parts[at]
        {
            *metadata = Some(state.get().to_owned());
        }
    }

    /// Adds a call.
    pub fn call(&mut self, call: CallId) {
        self.push(ReplyPart::ToolCall { call });
    }

    /// Adds a hosted call. `result` is the part for its failure if no result comes.
    pub fn hosted_call(&mut self, id: PartId, result: PartId, call: &ToolCall) {
        let name = storable(&call.id).into_owned();
        self.push(ReplyPart::HostedCall {
            id,
            call: name.clone(),
            name: storable(&call.name).into_owned(),
            input: storable(&call.arguments).into_owned(),
            metadata: state(call.provider_metadata.as_ref()),
        });
        self.unanswered.push((name, result));
    }

    /// Adds the result of a hosted call. Does nothing if there is no such call, or it has its result.
    pub fn hosted_result(&mut self, result: &ToolResult) {
        let call = storable(&result.id);
        let Some(at) = self.unanswered.iter().position(|(open, _)| *open == call) else { return };
        let (call, id) = self.unanswered.remove(at);
        self.push(ReplyPart::HostedResult {
            id,
            call,
            name: storable(&result.name).into_owned(),
            output: output(&result.content),
            is_error: result.is_error,
            metadata: state(result.provider_metadata.as_ref()),
        });
    }

    fn push(&mut self, part: ReplyPart) {
        self.parts.push(part);
        self.kept.push(0);
    }

    /// Returns whether the attempt must not be repeated: a user may have seen text or a call that is `seen`, or its
    /// provider has run something.
    pub fn is_visible(&self, seen: impl Fn(&CallId) -> bool) -> bool {
        self.parts.iter().any(|part| match part {
            ReplyPart::ToolCall { call } => seen(call),
            ReplyPart::Text { text, .. } | ReplyPart::Reasoning { text, .. } => !text.is_empty(),
            ReplyPart::HostedCall { .. } | ReplyPart::HostedResult { .. } => true,
        })
    }

    /// Returns whether it says nothing to anybody: no text and no call, and nothing that its provider has run.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.parts.iter().all(ReplyPart::says_nothing)
    }

    /// Returns whether it has no call, and ends with one that is written as text.
    #[must_use]
    pub fn writes_call(&self) -> bool {
        domain::ends_with_written_call(&self.parts)
    }

    /// Returns all its text so far, without reasoning.
    #[must_use]
    pub fn text_so_far(&self) -> String {
        self.texts().map(|(_, _, text)| text.as_str()).collect()
    }

    /// Returns the number of text bytes that no checkpoint has kept.
    pub fn unkept(&self) -> usize {
        self.texts().map(|(index, _, text)| text.len() - self.kept[index]).sum()
    }

    /// Returns the text that no checkpoint has kept, with its offset, and counts it as kept.
    pub fn take_unkept(&mut self) -> Vec<(PartId, usize, String)> {
        let mut taken = Vec::new();
        for (index, id, text) in self.texts() {
            let from = self.kept[index];
            if from < text.len() {
                taken.push((index, id.clone(), from, text[from..].to_owned()));
            }
        }
        taken
            .into_iter()
            .map(|(index, id, from, text)| {
                self.kept[index] = from + text.len();
                (id, from, text)
            })
            .collect()
    }

    fn texts(&self) -> impl Iterator<Item = (usize, &PartId, &String)> {
        self.parts.iter().enumerate().filter_map(|(index, part)| match part {
            ReplyPart::Text { id, text, .. } => Some((index, id, text)),
            ReplyPart::Reasoning { .. }
            | ReplyPart::ToolCall { .. }
            | ReplyPart::HostedCall { .. }
            | ReplyPart::HostedResult { .. } => None,
        })
    }

    /// Returns the parts, without the calls that `keep` refuses. Each hosted call gets its result; a missing one is a
    /// failure.
    pub fn parts(&self, keep: impl Fn(&CallId) -> bool) -> Vec<ReplyPart> {
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            if matches!(part, ReplyPart::ToolCall { call } if !keep(call)) {
                continue;
            }
            parts.push(part.clone());
            if let ReplyPart::HostedCall { call, name, .. } = part
                && let Some((_, id)) = self.unanswered.iter().find(|(open, _)| open == call)
            {
                parts.push(ReplyPart::HostedResult {
                    id: id.clone(),
                    call: call.clone(),
                    name: name.clone(),
                    output: NO_RESULT.to_owned(),
                    is_error: true,
                    metadata: None,
                });
            }
        }
        parts
    }
}

/// Removes provider state from the parts, for builds that do not know it.
pub(crate) fn without_state(parts: Vec<ReplyPart>) -> Vec<ReplyPart> {
    let plain = parts.into_iter().filter_map(|part| match part {
        ReplyPart::Text { id, text, .. } => Some(ReplyPart::text(id, text)),
        ReplyPart::Reasoning { id, text, .. } => Some(ReplyPart::reasoning(id, text)),
        ReplyPart::ToolCall { .. } => Some(part),
        ReplyPart::HostedCall { .. } | ReplyPart::HostedResult { .. } => None,
    });
    plain.filter(|part| !is_empty(part)).collect()
}

fn is_empty(part: &ReplyPart) -> bool {
    match part {
        ReplyPart::Text { text, .. } | ReplyPart::Reasoning { text, .. } => text.is_empty(),
        ReplyPart::ToolCall { .. }
        | ReplyPart::HostedCall { .. }
        | ReplyPart::HostedResult { .. } => false,
    }
}

/// Returns the id of a text or of reasoning.
fn text_id(part: &ReplyPart) -> Option<&PartId> {
    match part {
        ReplyPart::Text { id, .. } | ReplyPart::Reasoning { id, .. } => Some(id),
        ReplyPart::ToolCall { .. }
        | ReplyPart::HostedCall { .. }
        | ReplyPart::HostedResult { .. } => None,
    }
}

fn state(metadata: Option<&RawJson>) -> Option<String> {
    metadata.map(|state| state.get().to_owned())
}

/// Returns the text of a result for other providers.
fn output(content: &[ToolContent]) -> String {
    let shown = content.iter().map(|content| match content {
        ToolContent::Text { text } => storable(text),
        ToolContent::Media { mime, .. } => format!("[{}]", storable(mime)).into(),
    });
    let whole = shown.collect::<Vec<_>>().join("\n");
    match truncate(&whole, HOSTED_OUTPUT) {
        cut if cut.len() < whole.len() => format!("{cut}\n[the rest is left out]"),
        _ => whole,
    }
}

/// Replaces NUL characters in a model's text, which Postgres cannot store.
pub fn storable(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{FFFD}").into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use domain::{IdMint, Stamp};

    use super::*;

    #[test]
    fn only_text_that_was_not_kept_is_taken_and_only_once() {
        let mut mint = IdMint::after(Stamp::default(), 1);
        let (one, two) = (PartId::mint(&mut mint), PartId::mint(&mut mint));
        let mut reply = Reply::default();
        reply.text(&one, "héllo");
        assert_eq!(reply.take_unkept(), [(one.clone(), 0, "héllo".to_owned())]);
        reply.text(&one, " you");
        reply.call(CallId::mint(&mut mint));
        reply.text(&two, "more");
        assert_eq!(reply.unkept(), 8);
        assert_eq!(reply.take_unkept(), [(one, 6, " you".to_owned()), (two, 0, "more".to_owned())]);
        assert_eq!(reply.unkept(), 0);
        assert_eq!(reply.take_unkept(), []);
    }

    #[test]
    fn a_nul_is_replaced_because_it_cannot_be_stored() {
        assert_eq!(storable("a\0b"), "a\u{FFFD}b");
    }

    #[test]
    fn state_is_kept_with_its_part_and_without_one_it_is_a_part() {
        let mut mint = IdMint::after(Stamp::default(), 1);
        let (one, two) = (PartId::mint(&mut mint), PartId::mint(&mut mint));
        let state = RawJson::parse(r#"{"a":{"signature":"s\u0000"}}"#).expect("JSON");
        let metadata = Some(state.get().to_owned());
        let mut reply = Reply::default();
        reply.end_reasoning(&one, &state);
        assert!(!reply.is_visible(|_| true), "nobody has seen anything");
        reply.text(&two, "hi");
        reply.call(CallId::mint(&mut mint));
        reply.end_text(&two, &state);
        let parts = reply.parts(|_| false);
        let reasoning =
            ReplyPart::Reasoning { id: one, text: String::new(), metadata: metadata.clone() };
        let text = ReplyPart::Text { id: two.clone(), text: "hi".into(), metadata };
        assert_eq!(parts, [reasoning, text]);
        assert_eq!(without_state(parts), [ReplyPart::text(two, "hi")]);
    }

    #[test]
    fn what_a_provider_ran_has_a_result_whatever_comes_and_is_not_asked_for_again() {
        let mut mint = IdMint::after(Stamp::default(), 1);
        let mut reply = Reply::default();
        for id in ["s_1", "s_2"] {
            let call = ToolCall { provider_executed: true, ..ToolCall::new(id, "search", "{}") };
            reply.hosted_call(PartId::mint(&mut mint), PartId::mint(&mut mint), &call);
        }
        assert!(reply.is_visible(|_| false));
        reply.hosted_result(&ToolResult::text("s_2", "search", "x".repeat(HOSTED_OUTPUT + 9)));
        reply.hosted_result(&ToolResult::text("s_2", "search", "a second one"));
        reply.hosted_result(&ToolResult::text("s_3", "search", "of nothing"));
        let parts = reply.parts(|_| true);
        let said = parts.iter().map(|part| match part {
            ReplyPart::HostedCall { call, .. } => (call.as_str(), None),
            ReplyPart::HostedResult { call, output, is_error, .. } => {
                assert!(output.len() <= HOSTED_OUTPUT + 24);
                (call.as_str(), Some(*is_error))
            }
            other @ (ReplyPart::Text { .. }
            | ReplyPart::Reasoning { .. }
            | ReplyPart::ToolCall { .. }) => panic!("{other:?}"),
        });
        let wanted = [("s_1", None), ("s_1", Some(true)), ("s_2", None), ("s_2", Some(false))];
        assert_eq!(said.collect::<Vec<_>>(), wanted);
        assert_eq!(without_state(parts), []);
    }
}
