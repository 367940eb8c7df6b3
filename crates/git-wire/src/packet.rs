//! Packets: four hexadecimal digits of length, and the bytes.

/// The most bytes of a packet, its length included.
pub const MAX_PACKET: usize = 65_520;

/// One packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    /// `0000`: the end of a message.
    Flush,
    /// `0001`: the end of a section.
    Delimiter,
    /// `0002`: the end of an answer.
    End,
    /// Bytes.
    Data(Vec<u8>),
}

/// The reason why an answer of a server is not read further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes are no packets, so that no git server wrote them.
    #[error("the answer is not in git's protocol")]
    NoPackets,
    /// The answer ended in the middle.
    #[error("the answer broke off")]
    BrokenOff,
    /// The server speaks another version, or lacks what all have.
    #[error("the server speaks no version of git's protocol that is read here")]
    Version,
    /// The server has objects with other names.
    #[error("the repository names its objects by {0}; only sha1 is read here")]
    ObjectFormat(String),
    /// A section that was not asked for, or a line that is not understood.
    #[error("the answer has a part that is not understood: {0}")]
    Unknown(String),
    /// The server refused, in its own words.
    #[error("the server said: {0}")]
    Remote(String),
    /// There are more refs than are read.
    #[error("the repository has more than {0} branches and tags")]
    TooManyRefs(usize),
}

/// Appends bytes as one packet. They must be fewer than [`MAX_PACKET`] − 4; the requests of this crate are.
pub fn encode(into: &mut Vec<u8>, bytes: &[u8]) {
    debug_assert!(bytes.len() <= MAX_PACKET - 4, "a packet of {} bytes", bytes.len());
    into.extend_from_slice(format!("{:04x}", bytes.len() + 4).as_bytes());
    into.extend_from_slice(bytes);
}

/// Reads packets from pieces of an answer, wherever they are cut. Keeps at most one packet.
#[derive(Debug, Default)]
pub struct Packets {
    kept: Vec<u8>,
    begin: usize,
}

impl Packets {
    /// Takes the next piece of the answer.
    pub fn push(&mut self, bytes: &[u8]) {
        self.kept.drain(..self.begin);
        self.begin = 0;
        self.kept.extend_from_slice(bytes);
    }

    /// Returns the next whole packet; `None` until more bytes have come.
    ///
    /// # Errors
    /// [`WireError::NoPackets`].
    pub fn take(&mut self) -> Result<Option<Packet>, WireError> {
        let rest = &self.kept[self.begin..];
        let Some((digits, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
        let text = std::str::from_utf8(digits).map_err(|_| WireError::NoPackets)?;
        let length = usize::from_str_radix(text, 16).map_err(|_| WireError::NoPackets)?;
        let (packet, taken) = match length {
            _ if !is_hex => return Err(WireError::NoPackets),
            0 => (Packet::Flush, 4),
            1 => (Packet::Delimiter, 4),
            2 => (Packet::End, 4),
            3 => return Err(WireError::NoPackets),
            length if length > MAX_PACKET => return Err(WireError::NoPackets),
            length => match rest.get(..length - 4) {
                Some(bytes) => (Packet::Data(bytes.to_vec()), length),
                None => return Ok(None),
            },
        };
        self.begin += taken;
        Ok(Some(packet))
    }

    /// Returns whether a packet has begun and not ended.
    #[must_use]
    pub fn is_amid(&self) -> bool {
        self.begin < self.kept.len()
    }
}

/// Returns the text of a line without its line break, and the words of a server that refuses as an error.
pub(crate) fn line(bytes: &[u8]) -> Result<&str, WireError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| WireError::Unknown("a line that is no UTF-8".to_owned()))?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    match text.strip_prefix("ERR ") {
        Some(words) => Err(WireError::Remote(shown(words))),
        None => Ok(text),
    }
}

/// Returns a stranger's words as they may be shown: short, and on one line.
pub(crate) fn shown(words: &str) -> String {
    let plain = words.trim().chars().map(|one| if one.is_control() { ' ' } else { one });
    plain.take(300).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(packets: &mut Packets) -> Result<Vec<Packet>, WireError> {
        std::iter::from_fn(|| packets.take().transpose()).collect()
    }

    #[test]
    fn bytes_that_are_no_packets_are_refused() {
        for bad in [&b"<html><body>"[..], b"0003", b"+00a123456", b"ffff", b"fff1"] {
            let mut packets = Packets::default();
            packets.push(bad);
            assert_eq!(all(&mut packets), Err(WireError::NoPackets), "{bad:?}");
        }
    }

    #[test]
    fn words_of_a_server_have_no_control_characters() {
        let refused = line(b"ERR access \x1b[31mdenied\n");
        assert_eq!(refused, Err(WireError::Remote("access  [31mdenied".to_owned())));
    }

    proptest! {
        /// Packets come out as they went in, wherever the bytes are cut.
        #[test]
        fn packets_survive_any_cut(
            packets in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..40)), 0..8),
            size in 1_usize..50,
        ) {
            let mut bytes = Vec::new();
            let mut expected = Vec::new();
            for packet in packets {
                match packet {
                    Some(data) => {
                        encode(&mut bytes, &data);
                        expected.push(Packet::Data(data));
                    }
                    None => {
                        bytes.extend_from_slice(b"0000");
                        expected.push(Packet::Flush);
                    }
                }
            }
            let (mut reader, mut found) = (Packets::default(), Vec::new());
            for piece in bytes.chunks(size) {
                reader.push(piece);
                found.extend(all(&mut reader).expect("packets"));
            }
            prop_assert_eq!(found, expected);
            prop_assert!(!reader.is_amid());
        }

        /// No bytes make it panic or keep more than they are.
        #[test]
        fn no_bytes_are_trouble(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = Packets::default();
            reader.push(&bytes);
            let _any = all(&mut reader);
        }
    }
}
