//! Bytes of a process to text, piece by piece.

/// Turns pieces of output into text that can be stored anywhere: what is not UTF-8, and NUL, becomes U+FFFD.
/// However the bytes are cut into pieces, the text is the same.
#[derive(Debug, Default)]
pub struct TextDecoder {
    /// The beginning of a code point whose rest has not come yet: at most 3 bytes.
    pending: Vec<u8>,
}

impl TextDecoder {
    /// The text of the next piece, but for a code point that it does not finish.
    pub fn push(&mut self, piece: &[u8]) -> String {
        let joined;
        let mut rest = if self.pending.is_empty() {
            piece
        } else {
            joined = [&std::mem::take(&mut self.pending), piece].concat();
            joined.as_slice()
        };
        let mut text = String::with_capacity(rest.len());
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    push_without_nul(&mut text, valid);
                    return text;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    push_without_nul(&mut text, &String::from_utf8_lossy(valid));
                    let Some(bad) = error.error_len() else {
                        self.pending = after.to_vec();
                        return text;
                    };
                    text.push('\u{FFFD}');
                    rest = &after[bad..];
                }
            }
        }
    }

    /// The bytes of an unfinished code point at the end.
    #[must_use]
    pub fn finish(self) -> &'static str {
        if self.pending.is_empty() { "" } else { "\u{FFFD}" }
    }
}

fn push_without_nul(text: &mut String, valid: &str) {
    for (index, part) in valid.split('\0').enumerate() {
        if index > 0 {
            text.push('\u{FFFD}');
        }
        text.push_str(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_text(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(0xE2), Just(0x82), Just(0xAC)], 0..64),
            cuts in prop::collection::vec(1_usize..8, 1..16),
        ) {
            let mut decoder = TextDecoder::default();
            let (mut text, mut rest, mut cuts) = (String::new(), bytes.as_slice(), cuts.iter().cycle());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                text.push_str(&decoder.push(piece));
                rest = after;
            }
            text.push_str(decoder.finish());
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes).replace('\0', "\u{FFFD}"));
        }
    }
}
