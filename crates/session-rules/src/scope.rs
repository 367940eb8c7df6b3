//! Chooses the part of a conversation that one request for a summary shows.
//!
//! A request that may be as large as it needs to be is the conversation's next one with one more message, so that the
//! provider's cache serves it. Otherwise the request shows a transcript: first without the middles of large tool
//! results, and if that is still too large, only the oldest piece of the conversation. The remaining pieces are
//! summarised one after the other, each by its own Compaction.

use domain::{Seq, SummaryCut, SummaryScope};
use history::{History, transcript};
use llm_protocol::Role;

use crate::estimate;
use crate::tail::Tail;
use crate::texts;

/// The bytes of each tool result to try, from the most that fits.
const RESULT_BYTES: [u64; 3] = [8_192, 2_048, 512];
/// The bytes of each tool result in a piece.
const PIECE_RESULT_BYTES: u64 = 2_048;
/// The fewest bytes of a transcript: with less there is nothing to summarise.
const LEAST_BYTES: u64 = 256;

/// The allowed size of a request for a summary.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// The estimated tokens of a request that shows the whole conversation.
    pub(crate) whole: u64,
    /// The estimated tokens of the request's own part, which asks for the summary.
    pub(crate) asks: u64,
    /// The most tokens of the request, if known.
    pub(crate) most: Option<u64>,
    /// Whether a request with the whole conversation was refused, so that it is not sent again.
    pub(crate) is_refused: bool,
}

/// Returns the first message that stays, and the scope of the request for a summary of everything before it.
pub(crate) fn scope(history: &History, tail: &Tail, budget: Budget) -> (Seq, SummaryScope) {
    let conversation = history.conversation();
    let place = |at: usize| conversation.place(at).unwrap_or(Seq(history.seq().0 + 1));
    let whole = |to: usize| SummaryScope {
        kept: tail.kept.iter().filter(|at| **at < to).map(|at| place(*at)).collect(),
        is_piece: to < tail.from,
        tokens: budget.whole,
        ..SummaryScope::default()
    };
    let Some(most) = budget.most.filter(|most| budget.is_refused || budget.whole > *most) else {
        return (place(tail.from), whole(tail.from));
    };
    let fixed = estimate::text(texts::SUMMARY_SYSTEM) + budget.asks;
    let bytes = estimate::bytes_of(most.saturating_sub(fixed)).max(LEAST_BYTES);
    let uncut = |result_bytes| SummaryCut {
        result_bytes,
        text_bytes: u64::MAX,
        transcript_bytes: u64::MAX,
        mark: texts::LEFT_OUT.to_owned(),
    };
    let size = |to: usize, cut: &SummaryCut| -> u64 {
        transcript(conversation, history.view(), to, cut).len() as u64
    };
    let with = |to: usize, cut: SummaryCut| {
        let cut = SummaryCut { transcript_bytes: bytes, ..cut };
        let tokens = fixed + estimate::tokens_of(size(to, &cut));
        (place(to), SummaryScope { tokens, cut: Some(cut), ..whole(to) })
    };
    let fitting = RESULT_BYTES.into_iter().map(uncut).find(|cut| size(tail.from, cut) <= bytes);
    if let Some(cut) = fitting {
        return with(tail.from, cut);
    }
    let cut = SummaryCut { text_bytes: bytes / 4, ..uncut(PIECE_RESULT_BYTES) };
    let ends = ends(history, tail);
    let fits = ends.partition_point(|to| size(*to, &cut) <= bytes);
    let to = ends.get(fits.saturating_sub(1)).copied().unwrap_or(tail.from);
    with(to, cut)
}

/// Returns the possible ends of a piece: after something to summarise, and never between a call and its result. None is
/// before the view: what an earlier summary has replaced would be shown again.
fn ends(history: &History, tail: &Tail) -> Vec<usize> {
    let messages = history.conversation().messages();
    let shown = history.view().since(history.conversation(), 0);
    let goes = |at: usize| at < tail.from && !tail.kept.contains(&at);
    let first = shown.map(|(at, _)| at).find(|at| goes(*at)).unwrap_or(tail.from);
    let parts = |at: &usize| messages.get(*at).is_some_and(|said| said.role == Role::Tool);
    ((first + 1).max(history.view().from())..=tail.from).filter(|at| !parts(at)).collect()
}
