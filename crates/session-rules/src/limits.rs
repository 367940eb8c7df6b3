//! The largest requests, in tokens.

use history::{History, ModelEntry};
use llm_protocol::Generation;

use crate::rules::CompactionSettings;

/// The sizes of requests that cause an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The most tokens of a request.
    pub(crate) hard: u64,
    /// The size from which a turn's conversation is compacted first.
    pub(crate) threshold: u64,
    /// The most tokens of a request for a summary.
    pub(crate) summary: u64,
}

/// The context that a model is believed to have if nothing is known of it, in tokens.
const ASSUMED_CONTEXT: u64 = 128_000;
/// The largest context that such a model is believed to have, whatever it completed, in tokens: what the largest model
/// that anybody offers takes.
const MOST_ASSUMED: u64 = 2_000_000;
/// The largest body of a request, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;
/// The most tokens of any request: its body is below the largest one, also with quotes and line ends escaped.
pub(crate) const BODY_TOKENS: u64 = 6_000_000;

/// The fewest tokens of an answer that a request allows to fit its model's context.
pub(crate) const LEAST_ANSWER: u64 = 1_024;

/// Returns the controls of a request of about `size` tokens, which are estimated only if they matter. Providers count the allowed answer as part of the request,
/// so an answer that would not fit the context beside it becomes smaller, with room for what our estimate misses.
pub(crate) fn fit_answer(
    generation: &Generation,
    model: &ModelEntry,
    size: impl FnOnce() -> u64,
) -> Generation {
    let mut generation = generation.clone();
    let context = model.context_limit.filter(|context| *context > 0);
    if let (Some(most), Some(context)) = (&mut generation.max_tokens, context)
        && let size = size()
        && size.saturating_add(*most) > context
    {
        let free = context.saturating_sub(size);
        let missed = (size / 4).min(free / 4);
        *most = (*most).min((free - missed).max(LEAST_ANSWER));
    }
    generation
}

/// The limits of a model that its session has met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MetLimits {
    /// The estimated tokens of the smallest request that the provider has refused as too large since a turn completed.
    pub(crate) refused: Option<u64>,
    /// The tokens of the largest request and answer that it completed.
    pub(crate) accepted: u64,
}

impl MetLimits {
    /// Returns what the session has met with a model, and with `refused` besides.
    pub(crate) fn read_from(history: &History, model: &ModelEntry, refused: Option<u64>) -> Self {
        Self {
            refused: refused.into_iter().chain(history.squeeze().refused).min(),
            accepted: history.accepted(&model.provider, &model.id),
        }
    }
}

impl Limits {
    /// Returns the limits of a model, with those that its session has met.
    pub(crate) fn choose_for(
        settings: &CompactionSettings,
        model: &ModelEntry,
        met: MetLimits,
    ) -> Self {
        let known = Self::known(settings, model)
            .unwrap_or_else(|| Self::assumed(settings, model, met.accepted));
        let Some(refused) = met.refused else { return known };
        // However bad our estimate is, half of the refused size is closer to a size that fits.
        let half = refused / 2;
        Self { threshold: known.threshold.min(half), summary: known.summary.min(half), ..known }
    }

    /// Returns the limits from the model's facts. At most half of the context stays free for the answer, since a
    /// small context would otherwise be compacted before every turn. A limit of the input excludes the answer, so
    /// there only the buffer stays free.
    fn known(settings: &CompactionSettings, model: &ModelEntry) -> Option<Self> {
        let context = model.context_limit.map(|most| (most, Self::free(settings, model)));
        let input = model.input_limit.map(|most| (most, settings.buffer));
        let limits = [context, input].into_iter().flatten().filter(|(most, _)| *most > 0);
        let limits = limits.map(|(most, free)| (most.min(BODY_TOKENS), free));
        let limits = limits.map(|(most, free)| (most, most - free.min(most / 2)));
        let (hard, threshold) =
            limits.reduce(|one, other| (one.0.min(other.0), one.1.min(other.1)))?;
        Some(Self { hard, threshold, summary: hard - (hard - threshold) / 4 })
    }

    /// Returns the limits of a model of which none is known. Nothing is refused because of them: a single prompt may be
    /// larger, and if it is answered, the model takes more than was assumed.
    fn assumed(settings: &CompactionSettings, model: &ModelEntry, accepted: u64) -> Self {
        let met = if accepted > ASSUMED_CONTEXT { accepted.saturating_mul(2) } else { 0 };
        let most = met.clamp(ASSUMED_CONTEXT, MOST_ASSUMED);
        let free = Self::free(settings, model).min(most / 2);
        Self { hard: BODY_TOKENS, threshold: most - free, summary: most - free / 4 }
    }

    /// Returns the tokens that stay free for an answer, and for what our estimate misses.
    fn free(settings: &CompactionSettings, model: &ModelEntry) -> u64 {
        let answer = model.output_limit.unwrap_or(settings.output_cap).min(settings.output_cap);
        answer.max(settings.buffer)
    }

    /// Returns the most tokens of a summary, of the recent conversation that stays beside it, and of one result.
    pub(crate) fn share(self) -> u64 {
        self.threshold / 4
    }
}

#[cfg(test)]
mod tests {
    use llm_protocol::Protocol;

    use super::*;

    fn model(context: Option<u64>, input: Option<u64>, output: Option<u64>) -> ModelEntry {
        ModelEntry {
            provider: "p".into(),
            id: "m".into(),
            protocol: Protocol::OpenAiChat,
            context_limit: context,
            input_limit: input,
            output_limit: output,
            dialect: llm_protocol::Dialect::default(),
        }
    }

    const KNOWN: MetLimits = MetLimits { refused: None, accepted: 0 };

    fn threshold(context: Option<u64>, input: Option<u64>, output: Option<u64>) -> u64 {
        let settings = CompactionSettings::default();
        Limits::choose_for(&settings, &model(context, input, output), KNOWN).threshold
    }

    #[test]
    fn the_threshold_leaves_room_for_an_answer_and_a_buffer() {
        let of = |context, output| threshold(context, None, output);
        assert_eq!(of(Some(200_000), Some(8_000)), 180_000, "the buffer is larger");
        assert_eq!(of(Some(200_000), Some(64_000)), 168_000, "capped");
        assert_eq!(of(Some(200_000), None), 168_000);
        assert_eq!(of(Some(16_000), Some(16_000)), 8_000, "a model whose answer may fill it");
    }

    // Finding: report 30-a17 (0xku/kon#91).
    #[test]
    fn an_answer_is_made_smaller_if_it_would_not_fit() {
        let fitted = |context, most, size| {
            let generation = Generation { max_tokens: most, ..Generation::default() };
            fit_answer(&generation, &model(context, None, most), || size).max_tokens
        };
        assert_eq!(fitted(Some(32_768), Some(32_000), 3_000), Some(29_018));
        assert_eq!(fitted(Some(200_000), Some(131_072), 100_000), Some(75_000));
        assert_eq!(fitted(Some(200_000), Some(32_000), 168_000), Some(32_000), "it fits");
        assert_eq!(fitted(Some(200_000), Some(32_000), 190_000), Some(7_500));
        assert_eq!(fitted(Some(32_768), Some(32_000), 40_000), Some(LEAST_ANSWER));
        assert_eq!(fitted(Some(32_768), Some(500), 40_000), Some(500));
        assert_eq!(fitted(Some(32_768), None, 40_000), None, "the provider decides");
        for unknown in [None, Some(0)] {
            assert_eq!(fitted(unknown, Some(32_000), 190_000), Some(32_000));
        }
    }

    // Finding core-3 M1: a model without a known limit got requests without any bound.
    #[test]
    fn an_unknown_limit_is_assumed_until_it_is_met() {
        let settings = CompactionSettings::default();
        let of = |met| Limits::choose_for(&settings, &model(None, None, Some(8_000)), met);
        let assumed = Limits { hard: BODY_TOKENS, threshold: 108_000, summary: 123_000 };
        assert_eq!(of(KNOWN), assumed);
        assert_eq!(of(MetLimits { accepted: 128_000, ..KNOWN }), assumed);
        assert_eq!(of(MetLimits { accepted: 150_000, ..KNOWN }).threshold, 280_000);
        assert_eq!(of(MetLimits { accepted: u64::MAX, ..KNOWN }).summary, MOST_ASSUMED - 5_000);
        assert_eq!(of(MetLimits { refused: Some(90_000), ..KNOWN }).threshold, 45_000);
        assert_eq!(threshold(Some(0), None, None), 96_000, "no model has no context");
        let huge = Limits::choose_for(&settings, &model(Some(u64::MAX), None, None), KNOWN);
        assert_eq!(huge.hard, BODY_TOKENS, "no body is larger");
    }

    // Finding scenarios F2, conformance FR-07 (1): the limit of the input was never used.
    #[test]
    fn a_limit_of_the_input_counts_if_it_is_the_smaller_one() {
        let (context, input) = (Some(400_000), Some(272_000));
        assert_eq!(threshold(context, input, Some(128_000)), 252_000, "gpt-5");
        assert_eq!(threshold(None, input, None), 252_000, "it alone is known");
        assert_eq!(threshold(Some(200_000), Some(200_000), Some(64_000)), 168_000);
        let limits =
            Limits::choose_for(&CompactionSettings::default(), &model(context, input, None), KNOWN);
        assert_eq!((limits.hard, limits.summary), (272_000, 267_000));
    }

    #[test]
    fn a_refusal_teaches_a_limit() {
        let settings = CompactionSettings::default();
        let refused = MetLimits { refused: Some(60_000), ..KNOWN };
        let of = |context| Limits::choose_for(&settings, &model(context, None, None), refused);
        let learned = Limits { hard: BODY_TOKENS, threshold: 30_000, summary: 30_000 };
        assert_eq!(of(None), learned);
        assert_eq!(of(Some(200_000)), Limits { hard: 200_000, ..learned });
        let small = Limits { hard: 16_000, threshold: 8_000, summary: 14_000 };
        assert_eq!(of(Some(16_000)), small, "what is known is less");
    }
}
