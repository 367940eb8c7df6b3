//! The largest requests, in tokens.

use history::ModelEntry;

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

impl Limits {
    /// Returns the limits of a model, with those learnt from a refusal: `refused` is the size of a turn's request
    /// that the provider refused as too large. `None` if nothing is known.
    pub(crate) fn of(
        settings: &CompactionSettings,
        model: &ModelEntry,
        refused: Option<u64>,
    ) -> Option<Self> {
        let known = Self::known(settings, model);
        let Some(refused) = refused else { return known };
        // However bad our estimate is, half of the refused size is closer to a size that fits.
        let half = refused / 2;
        Some(match known {
            None => Self { hard: u64::MAX, threshold: half, summary: half },
            Some(known) => Self {
                threshold: known.threshold.min(half),
                summary: known.summary.min(half),
                ..known
            },
        })
    }

    /// Returns the limits from the model's facts. At most half of the context stays free for the answer, since a
    /// small context would otherwise be compacted before every turn. A limit of the input excludes the answer, so
    /// there only the buffer stays free.
    fn known(settings: &CompactionSettings, model: &ModelEntry) -> Option<Self> {
        let answer = model.output_limit.unwrap_or(settings.output_cap).min(settings.output_cap);
        let context = model.context_limit.map(|most| (most, answer.max(settings.buffer)));
        let input = model.input_limit.map(|most| (most, settings.buffer));
        let limits = [context, input].into_iter().flatten().filter(|(most, _)| *most > 0);
        let limits = limits.map(|(most, free)| (most, most - free.min(most / 2)));
        let (hard, threshold) =
            limits.reduce(|one, other| (one.0.min(other.0), one.1.min(other.1)))?;
        Some(Self { hard, threshold, summary: hard - (hard - threshold) / 4 })
    }

    /// Returns the most tokens of a summary, and of the recent conversation that stays beside it.
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

    fn threshold(context: Option<u64>, input: Option<u64>, output: Option<u64>) -> Option<u64> {
        let settings = CompactionSettings::default();
        let limits = Limits::of(&settings, &model(context, input, output), None);
        limits.map(|limits| limits.threshold)
    }

    #[test]
    fn the_threshold_leaves_room_for_an_answer_and_a_buffer() {
        let of = |context, output| threshold(context, None, output);
        assert_eq!(of(None, Some(8_000)), None);
        assert_eq!(of(Some(0), None), None);
        assert_eq!(of(Some(200_000), Some(8_000)), Some(180_000), "the buffer is larger");
        assert_eq!(of(Some(200_000), Some(64_000)), Some(168_000), "capped");
        assert_eq!(of(Some(200_000), None), Some(168_000));
        assert_eq!(of(Some(16_000), Some(16_000)), Some(8_000), "a model whose answer may fill it");
    }

    // Finding scenarios F2, conformance FR-07 (1): the limit of the input was never used.
    #[test]
    fn a_limit_of_the_input_counts_if_it_is_the_smaller_one() {
        let (context, input) = (Some(400_000), Some(272_000));
        assert_eq!(threshold(context, input, Some(128_000)), Some(252_000), "gpt-5");
        assert_eq!(threshold(None, input, None), Some(252_000), "it alone is known");
        assert_eq!(threshold(Some(200_000), Some(200_000), Some(64_000)), Some(168_000));
        let limits = Limits::of(&CompactionSettings::default(), &model(context, input, None), None);
        assert_eq!(limits.map(|limits| (limits.hard, limits.summary)), Some((272_000, 267_000)));
    }

    #[test]
    fn a_refusal_teaches_a_limit() {
        let settings = CompactionSettings::default();
        let of = |context| Limits::of(&settings, &model(context, None, None), Some(60_000));
        let learned = Limits { hard: u64::MAX, threshold: 30_000, summary: 30_000 };
        assert_eq!(of(None), Some(learned));
        assert_eq!(of(Some(200_000)), Some(Limits { hard: 200_000, ..learned }));
        let small = Limits { hard: 16_000, threshold: 8_000, summary: 14_000 };
        assert_eq!(of(Some(16_000)), Some(small), "what is known is less");
    }
}
