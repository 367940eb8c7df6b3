//! Assembles the pieces of an answer's parts, so that nothing is shown twice or out of order.

use std::collections::BTreeMap;

use domain::PartId;

/// The number of bytes shown of each part. Pieces may be missing, overlap or repeat; the settled part fills the gaps.
#[derive(Debug, Default)]
pub struct PartTexts {
    shown: BTreeMap<PartId, u64>,
}

impl PartTexts {
    /// Returns the part of a piece that is new and may be shown now. The piece starts `offset` UTF-8 bytes into its
    /// part. After a gap it returns nothing; a later piece fills the gap.
    pub fn add<'a>(&mut self, part: &PartId, offset: u64, text: &'a str) -> &'a str {
        let shown = self.shown.get(part).copied().unwrap_or(0);
        let Some(known) = shown.checked_sub(offset) else { return "" };
        let Some(new) = usize::try_from(known).ok().and_then(|known| text.get(known..)) else {
            return "";
        };
        if !new.is_empty() {
            self.shown.insert(part.clone(), shown + new.len() as u64);
        }
        new
    }

    /// Returns whether any of a part has been shown.
    #[must_use]
    pub fn has_begun(&self, part: &PartId) -> bool {
        self.shown.contains_key(part)
    }

    /// Forgets all parts, because those of a finished turn do not come again.
    pub fn clear(&mut self) {
        self.shown.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_repeat_overlap_or_leave_gaps_give_the_text_once() {
        let part: PartId = "prt_1".parse().expect("an id");
        let mut texts = PartTexts::default();
        assert_eq!(texts.add(&part, 0, "hé"), "hé");
        assert_eq!(texts.add(&part, 0, "hé"), "");
        assert_eq!(texts.add(&part, 5, "later"), "");
        assert_eq!(texts.add(&part, 1, "éll"), "ll");
        assert_eq!(texts.add(&part, 3, ""), "");
        assert_eq!(texts.add(&part, 0, "héllo, all of it"), "o, all of it");
        let other: PartId = "prt_2".parse().expect("an id");
        assert_eq!(texts.add(&other, 0, "x"), "x");
        assert!(texts.has_begun(&other));
    }

    #[test]
    fn a_text_that_is_shorter_than_what_was_shown_or_cut_elsewhere_shows_nothing() {
        let part: PartId = "prt_1".parse().expect("an id");
        let mut texts = PartTexts::default();
        assert_eq!(texts.add(&part, 0, "abc"), "abc");
        assert_eq!(texts.add(&part, 0, "ab"), "");
        assert_eq!(texts.add(&part, 0, "abé"), "");
    }
}
