use crate::packet::{Packet, Packets, WireError, line, shown};

/// A piece of the answer to [`crate::fetch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PackEvent {
    /// Bytes of the pack.
    Bytes(Vec<u8>),
    /// A line of the server about its progress, for people.
    Progress(String),
}

/// Reads the answer to [`crate::fetch`]: takes the pack out of its bands.
#[derive(Debug, Default)]
pub struct PackReader {
    packets: Packets,
    section: Section,
    bytes: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Section {
    /// None has begun yet.
    #[default]
    Before,
    /// A section that does not matter to a client that has said `done`.
    Skipped,
    /// An old server's lines before the pack, which tell what both have.
    Acknowledged,
    Pack,
    Ended,
}

impl PackReader {
    /// Begins with the answer to [`crate::OldServer::fetch`].
    #[must_use]
    pub fn of_old() -> Self {
        Self { section: Section::Acknowledged, ..Self::default() }
    }

    /// Takes the next piece and returns what is whole in it.
    ///
    /// # Errors
    /// The answer is not understood, or the server refuses.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<PackEvent>, WireError> {
        self.packets.push(bytes);
        let mut events = Vec::new();
        while let Some(packet) = self.packets.take()? {
            match (&self.section, packet) {
                (Section::Before, Packet::Data(data)) => {
                    self.section = match line(&data)? {
                        "packfile" => Section::Pack,
                        "acknowledgments" | "shallow-info" | "wanted-refs" => Section::Skipped,
                        other => return Err(WireError::Unknown(shown(other))),
                    };
                }
                (Section::Acknowledged, Packet::Data(data)) => match data.first() {
                    Some(1..=3) => {
                        self.section = Section::Pack;
                        events.extend(self.band(&data)?);
                    }
                    _ => match line(&data)? {
                        "NAK" => {}
                        ack if ack.starts_with("ACK ") => {}
                        other => return Err(WireError::Unknown(shown(other))),
                    },
                },
                (Section::Skipped, Packet::Data(data)) => line(&data).map(drop)?,
                (Section::Skipped, Packet::Delimiter) => self.section = Section::Before,
                (Section::Pack, Packet::Data(data)) => events.extend(self.band(&data)?),
                (Section::Pack, Packet::Flush | Packet::End) => self.section = Section::Ended,
                (Section::Ended, Packet::End | Packet::Flush) => {}
                (_, other) => {
                    let what = match other {
                        Packet::Data(_) => "bytes behind the pack",
                        Packet::Flush | Packet::Delimiter | Packet::End => "an end before the pack",
                    };
                    return Err(WireError::Unknown(what.to_owned()));
                }
            }
        }
        Ok(events)
    }

    fn band(&mut self, data: &[u8]) -> Result<Option<PackEvent>, WireError> {
        let Some((band, rest)) = data.split_first() else { return Ok(None) };
        match band {
            1 => {
                self.bytes += rest.len() as u64;
                Ok(Some(PackEvent::Bytes(rest.to_vec())))
            }
            2 => Ok(Some(PackEvent::Progress(shown(&String::from_utf8_lossy(rest))))),
            3 => Err(WireError::Remote(shown(&String::from_utf8_lossy(rest)))),
            other => Err(WireError::Unknown(format!("band {other}"))),
        }
    }

    /// Returns how many bytes of the pack have come.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends the answer. Silence is no success.
    ///
    /// # Errors
    /// [`WireError::BrokenOff`].
    pub fn finish(self) -> Result<u64, WireError> {
        if self.section == Section::Ended && !self.packets.is_amid() {
            Ok(self.bytes)
        } else {
            Err(WireError::BrokenOff)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode;

    fn answer() -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&mut bytes, b"acknowledgments\n");
        encode(&mut bytes, b"NAK\n");
        bytes.extend_from_slice(b"0001");
        encode(&mut bytes, b"packfile\n");
        encode(&mut bytes, b"\x02Counting\n");
        encode(&mut bytes, b"\x01PACK");
        encode(&mut bytes, b"\x01rest");
        bytes.extend_from_slice(b"0000");
        bytes
    }

    #[test]
    fn the_pack_comes_out_of_its_band() {
        let mut reader = PackReader::default();
        let mut events = Vec::new();
        answer().chunks(3).for_each(|piece| events.extend(reader.push(piece).expect("an answer")));
        let expected = [
            PackEvent::Progress("Counting".to_owned()),
            PackEvent::Bytes(b"PACK".to_vec()),
            PackEvent::Bytes(b"rest".to_vec()),
        ];
        assert_eq!(events, expected);
        assert_eq!(reader.finish(), Ok(8));
    }

    #[test]
    fn an_old_servers_pack_follows_its_lines() {
        let mut bytes = Vec::new();
        for data in [&b"NAK\n"[..], b"ACK 1234\n", b"\x02Counting\n", b"\x01PACK", b"\x01rest"] {
            encode(&mut bytes, data);
        }
        bytes.extend_from_slice(b"0000");
        for cut in 0..bytes.len() {
            let mut reader = PackReader::of_old();
            reader.push(&bytes[..cut]).expect("a beginning");
            assert_eq!(reader.finish(), Err(WireError::BrokenOff), "{cut}");
        }
        let mut reader = PackReader::of_old();
        let events: Vec<_> =
            bytes.chunks(3).flat_map(|piece| reader.push(piece).expect("an answer")).collect();
        assert_eq!((events.len(), reader.finish()), (3, Ok(8)));
        let mut refused = Vec::new();
        encode(&mut refused, b"ERR upload-pack: not our ref 12\n");
        let refused = PackReader::of_old().push(&refused);
        assert_eq!(refused, Err(WireError::Remote("upload-pack: not our ref 12".to_owned())));
    }

    #[test]
    fn an_answer_cut_anywhere_has_no_whole_pack() {
        let whole = answer();
        for cut in 0..whole.len() {
            let mut reader = PackReader::default();
            reader.push(&whole[..cut]).expect("a beginning");
            assert_eq!(reader.finish(), Err(WireError::BrokenOff), "{cut}");
        }
    }

    #[test]
    fn a_server_that_refuses_is_heard() {
        let mut bytes = Vec::new();
        encode(&mut bytes, b"ERR upload-pack: not our ref 1234");
        let refused = PackReader::default().push(&bytes);
        assert_eq!(refused, Err(WireError::Remote("upload-pack: not our ref 1234".to_owned())));
        let mut bytes = Vec::new();
        encode(&mut bytes, b"packfile\n");
        encode(&mut bytes, b"\x03out of disk");
        let refused = PackReader::default().push(&bytes);
        assert_eq!(refused, Err(WireError::Remote("out of disk".to_owned())));
    }
}
