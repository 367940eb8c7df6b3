//! Computes which part of a prompt a provider's cache holds. Pure except for the [`Memory`].
//!
//! Anthropic and Bedrock cache up to the marks in the request, Responses and Gemini everything they have seen. A
//! prompt is a row of pieces (tools, instructions, blocks of messages). Its beginnings up to each piece are hashed
//! without marks, because marks move from one request to the next.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::answer::{Usage, tokens};
use crate::memory::{Memory, Prefix};
use crate::protocol::Protocol;

/// The pieces of a prompt.
#[derive(Default)]
pub(crate) struct Pieces(Vec<Piece>);

struct Piece {
    text: String,
    is_marked: bool,
}

impl Pieces {
    /// Adds a piece. It is marked if it has the member `cache_control`.
    pub(crate) fn push(&mut self, role: &str, piece: &Value) {
        let mut piece = piece.clone();
        let is_marked =
            piece.as_object_mut().is_some_and(|piece| piece.remove("cache_control").is_some());
        self.0.push(Piece { text: json!([role, piece]).to_string(), is_marked });
    }

    /// Adds all items of a list.
    pub(crate) fn extend(&mut self, role: &str, list: &Value) {
        for piece in list.as_array().into_iter().flatten() {
            self.push(role, piece);
        }
    }

    /// Marks the last piece.
    pub(crate) fn mark(&mut self) {
        if let Some(last) = self.0.last_mut() {
            last.is_marked = true;
        }
    }

    /// Adds the cache's tokens to `usage`, and puts this prompt into the cache.
    pub(crate) fn meter(
        &self,
        protocol: Protocol,
        model: &str,
        memory: &Memory,
        usage: &mut Usage,
    ) {
        let beginnings = self.beginnings(protocol, model);
        let is_marked = |at: &usize| self.0[*at].is_marked;
        let marks: Vec<usize> = if protocol.caches_unasked() {
            self.0.len().checked_sub(1).into_iter().collect()
        } else {
            (0..self.0.len()).filter(is_marked).collect()
        };
        let Some(last) = marks.last() else { return };
        let held = |(_, prefix): &&(u64, Prefix)| memory.is_cached(prefix);
        let read = beginnings[..=*last].iter().rev().find(held).map_or(0, |(tokens, _)| *tokens);
        usage.cache_read_tokens = read.min(usage.prompt_tokens);
        if !protocol.caches_unasked() {
            let marked = beginnings[*last].0.min(usage.prompt_tokens);
            usage.cache_write_tokens = marked - usage.cache_read_tokens;
        }
        memory.cache(marks.iter().map(|at| beginnings[*at].1));
    }

    /// Returns the tokens and the hash of everything up to each piece.
    fn beginnings(&self, protocol: Protocol, model: &str) -> Vec<(u64, Prefix)> {
        let mut hash = Sha256::new();
        hash.update(protocol.id());
        hash.update([0]);
        hash.update(model);
        let mut bytes = 0;
        let mut beginnings = Vec::with_capacity(self.0.len());
        for piece in &self.0 {
            hash.update([0]);
            hash.update(&piece.text);
            bytes += piece.text.len();
            beginnings.push((tokens(bytes), hash.clone().finalize().into()));
        }
        beginnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage_of(memory: &Memory, protocol: Protocol, pieces: &[(&str, bool)]) -> (bool, bool) {
        let mut all = Pieces::default();
        for (text, is_marked) in pieces {
            let mut piece = json!({ "text": text });
            if *is_marked {
                piece["cache_control"] = json!({ "type": "ephemeral" });
            }
            all.push("user", &piece);
        }
        let mut usage = Usage { prompt_tokens: 1_000, ..Usage::default() };
        all.meter(protocol, "m", memory, &mut usage);
        (usage.cache_read_tokens > 0, usage.cache_write_tokens > 0)
    }

    #[test]
    fn marks_write_and_later_marks_read_although_they_moved() {
        let memory = Memory::default();
        let of = |pieces: &[(&str, bool)]| usage_of(&memory, Protocol::Anthropic, pieces);
        assert_eq!(of(&[("a", false), ("b", false)]), (false, false));
        assert_eq!(of(&[("a", false), ("b", true)]), (false, true));
        assert_eq!(of(&[("a", false), ("b", true)]), (true, false));
        assert_eq!(of(&[("a", false), ("b", false), ("c", true)]), (true, true));
        assert_eq!(of(&[("a", false), ("b", false), ("c", false)]), (false, false));
        assert_eq!(of(&[("x", false), ("b", true)]), (false, true));
    }

    #[test]
    fn some_cache_without_marks_and_each_its_own() {
        let memory = Memory::default();
        let of = |protocol, pieces: &[(&str, bool)]| usage_of(&memory, protocol, pieces);
        assert_eq!(of(Protocol::Gemini, &[("a", false)]), (false, false));
        assert_eq!(of(Protocol::Gemini, &[("a", false), ("b", false)]), (true, false));
        assert_eq!(of(Protocol::Responses, &[("a", false)]), (false, false));
    }
}
