use domain::{CallId, PartId, ReplyPart};

/// The reply of one attempt, as far as it has come. Pure: ids come from the caller.
#[derive(Debug, Default)]
pub struct Reply {
    parts: Vec<ReplyPart>,
    /// Bytes of each text part, by its index, that a checkpoint has kept.
    kept: Vec<usize>,
}

impl Reply {
    /// Adds text to the part `id`, which is the last one or new.
    pub fn text(&mut self, id: &PartId, text: &str) {
        match self.parts.last_mut() {
            Some(ReplyPart::Text { id: last, text: so_far }) if last == id => so_far.push_str(text),
            _ => self.push(ReplyPart::Text { id: id.clone(), text: text.to_owned() }),
        }
    }

    /// Adds reasoning to the part `id`, which is the last one or new.
    pub fn reasoning(&mut self, id: &PartId, text: &str) {
        match self.parts.last_mut() {
            Some(ReplyPart::Reasoning { id: last, text: so_far }) if last == id => {
                so_far.push_str(text);
            }
            _ => self.push(ReplyPart::Reasoning { id: id.clone(), text: text.to_owned() }),
        }
    }

    /// Adds a call.
    pub fn call(&mut self, call: CallId) {
        self.push(ReplyPart::ToolCall { call });
    }

    fn push(&mut self, part: ReplyPart) {
        self.parts.push(part);
        self.kept.push(0);
    }

    /// Whether a user may have seen something of it: any text, or a call that is `seen`.
    pub fn is_visible(&self, seen: impl Fn(&CallId) -> bool) -> bool {
        self.parts.iter().any(|part| match part {
            ReplyPart::ToolCall { call } => seen(call),
            ReplyPart::Text { .. } | ReplyPart::Reasoning { .. } => true,
        })
    }

    /// All its text so far, without reasoning.
    #[must_use]
    pub fn text_so_far(&self) -> String {
        self.texts().map(|(_, _, text)| text.as_str()).collect()
    }

    /// Bytes of text that no checkpoint has kept.
    pub fn unkept(&self) -> usize {
        self.texts().map(|(index, _, text)| text.len() - self.kept[index]).sum()
    }

    /// Takes the text that no checkpoint has kept, with where it starts; from here on it counts as kept.
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
            ReplyPart::Text { id, text } => Some((index, id, text)),
            ReplyPart::Reasoning { .. } | ReplyPart::ToolCall { .. } => None,
        })
    }

    /// The parts, without the calls that `keep` refuses.
    pub fn parts(&self, keep: impl Fn(&CallId) -> bool) -> Vec<ReplyPart> {
        let kept = |part: &&ReplyPart| match part {
            ReplyPart::ToolCall { call } => keep(call),
            ReplyPart::Text { .. } | ReplyPart::Reasoning { .. } => true,
        };
        self.parts.iter().filter(kept).cloned().collect()
    }
}

/// A model's text as it may be stored: Postgres text holds no NUL.
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
}
