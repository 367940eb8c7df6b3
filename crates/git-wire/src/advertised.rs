use crate::packet::{Packet, Packets, WireError, line};

/// The most bytes of an advertisement.
const MAX_BYTES: usize = 256 * 1024;

/// A server's abilities, as `GET info/refs?service=git-upload-pack` tells them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertised {
    /// Whether it can filter a fetch, so that it leaves blobs out.
    pub filter: bool,
}

impl Advertised {
    /// Reads a whole advertisement.
    ///
    /// # Errors
    /// The bytes are no advertisement of version 2, or the server lacks what a fetch needs.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() > MAX_BYTES {
            // Only a server of version 0 sends its refs here.
            return Err(WireError::Version);
        }
        let mut packets = Packets::default();
        packets.push(bytes);
        let mut lines = Vec::new();
        while let Some(packet) = packets.take()? {
            if let Packet::Data(data) = packet {
                lines.push(line(&data)?.to_owned());
            }
        }
        if packets.is_amid() {
            return Err(WireError::BrokenOff);
        }
        let mut lines =
            lines.iter().map(String::as_str).skip_while(|line| line.starts_with("# service="));
        if lines.next() != Some("version 2") {
            return Err(WireError::Version);
        }
        let (mut fetches, mut lists, mut filter) = (false, false, false);
        for ability in lines {
            let (name, value) = ability.split_once('=').unwrap_or((ability, ""));
            match name {
                "object-format" if value != "sha1" => {
                    return Err(WireError::ObjectFormat(crate::packet::shown(value)));
                }
                "ls-refs" => lists = true,
                "fetch" => {
                    fetches = true;
                    filter = value.split(' ').any(|word| word == "filter");
                }
                _ => {}
            }
        }
        if fetches && lists { Ok(Self { filter }) } else { Err(WireError::Version) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode;

    fn advertisement(lines: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&mut bytes, b"# service=git-upload-pack\n");
        bytes.extend_from_slice(b"0000");
        for line in lines {
            encode(&mut bytes, format!("{line}\n").as_bytes());
        }
        bytes.extend_from_slice(b"0000");
        bytes
    }

    #[test]
    fn version_two_with_its_commands_is_needed() {
        let of = |lines: &[&str]| Advertised::parse(&advertisement(lines));
        let found = of(&[
            "version 2",
            "agent=git/2",
            "ls-refs=unborn",
            "fetch=shallow filter",
            "object-format=sha1",
        ]);
        assert_eq!(found, Ok(Advertised { filter: true }));
        assert_eq!(of(&["version 2", "ls-refs", "fetch"]), Ok(Advertised { filter: false }));
        assert_eq!(of(&["version 1"]), Err(WireError::Version));
        assert_eq!(of(&["version 2", "ls-refs"]), Err(WireError::Version));
        let other = of(&["version 2", "ls-refs", "fetch", "object-format=sha256"]);
        assert_eq!(other, Err(WireError::ObjectFormat("sha256".to_owned())));
        assert_eq!(
            of(&["ERR no such repository"]),
            Err(WireError::Remote("no such repository".to_owned()))
        );
        assert_eq!(Advertised::parse(b"<!DOCTYPE html>"), Err(WireError::NoPackets));
        assert_eq!(Advertised::parse(b"0010vers"), Err(WireError::BrokenOff));
    }
}
