//! Versions 0 and 1 of the protocol, which some servers speak only: the advertisement has the refs, and one request has the
//! wants, the haves and the word `done`.

use std::collections::BTreeMap;

use crate::name::RefName;
use crate::oid::Oid;
use crate::packet::{Packet, Packets, WireError, encode, line, shown};
use crate::refs::{Listed, MAX_REFS};
use crate::request::AGENT;

/// The most bytes of an advertisement with its refs.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// The advertisement of a server of version 0 or 1: its branches and tags, and whether it leans packs on earlier ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldServer {
    /// The branch that HEAD names.
    pub head: Option<RefName>,
    /// All branches and tags in the order of their names.
    pub refs: Vec<Listed>,
    thin: bool,
}

impl OldServer {
    /// Reads a whole advertisement. Names that git itself refuses are left out.
    ///
    /// # Errors
    /// The bytes are no advertisement of these versions, or the server lacks what a fetch needs.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() > MAX_BYTES {
            return Err(WireError::TooManyRefs(MAX_REFS));
        }
        let lines = lines(bytes)?;
        let mut lines = lines.iter().map(String::as_str).filter(|line| !line.starts_with("# "));
        let mut first = lines.next().ok_or(WireError::Version)?;
        if first == "version 1" {
            first = lines.next().ok_or(WireError::Version)?;
        }
        let (first, abilities) = first.split_once('\0').ok_or(WireError::Version)?;
        let abilities: Vec<&str> = abilities.split(' ').collect();
        let value = |name: &str| abilities.iter().find_map(|word| word.strip_prefix(name));
        if let Some(other) = value("object-format=").filter(|format| *format != "sha1") {
            return Err(WireError::ObjectFormat(shown(other)));
        }
        if !["side-band-64k", "ofs-delta"].iter().all(|needed| abilities.contains(needed)) {
            return Err(WireError::Version);
        }
        let (mut at_head, mut named) = (None, BTreeMap::new());
        for text in std::iter::once(first).chain(lines) {
            let unknown = || WireError::Unknown(shown(text));
            let (oid, name) = text.split_once(' ').ok_or_else(unknown)?;
            let oid: Oid = oid.parse().map_err(|_| unknown())?;
            match name.strip_suffix("^{}") {
                None if name == "HEAD" => at_head = Some(oid),
                None => drop(named.insert(name, (oid, None))),
                // `capabilities^{}` stands for no refs.
                Some(name) => {
                    if let Some((_, peeled)) = named.get_mut(name) {
                        *peeled = Some(oid);
                    }
                }
            }
        }
        let of_interest =
            |name: &&str| ["refs/heads/", "refs/tags/"].iter().any(|of| name.starts_with(of));
        let listed = named.into_iter().filter(|(name, _)| of_interest(name)).filter_map(
            |(name, (oid, peeled))| Some(Listed { name: name.parse().ok()?, oid, peeled }),
        );
        let refs: Vec<Listed> = listed.collect();
        if refs.len() > MAX_REFS {
            return Err(WireError::TooManyRefs(MAX_REFS));
        }
        let told = value("symref=HEAD:").and_then(|name| name.parse().ok());
        let head = told.or_else(|| likely(at_head?, &refs));
        Ok(Self { head, refs, thin: abilities.contains(&"thin-pack") })
    }

    /// Returns the body that asks for one pack, as [`crate::fetch`] does. The pack may lean on what `haves` lead to.
    #[must_use]
    pub fn fetch<'a>(
        &self,
        wants: impl IntoIterator<Item = &'a Oid>,
        haves: impl IntoIterator<Item = &'a Oid>,
    ) -> Vec<u8> {
        let thin = if self.thin { " thin-pack" } else { "" };
        let mut abilities = format!(" side-band-64k ofs-delta{thin} agent={AGENT}");
        let mut body = Vec::new();
        for want in wants {
            encode(&mut body, format!("want {want}{abilities}\n").as_bytes());
            abilities.clear();
        }
        body.extend_from_slice(b"0000");
        for have in haves {
            encode(&mut body, format!("have {have}\n").as_bytes());
        }
        encode(&mut body, b"done\n");
        body
    }
}

/// Returns the branch that HEAD probably names, where a server does not say.
fn likely(head: Oid, refs: &[Listed]) -> Option<RefName> {
    let branches = refs
        .iter()
        .filter(|found| found.oid == head && found.name.as_str().starts_with("refs/heads/"));
    let usual = |name: &str| {
        ["refs/heads/main", "refs/heads/master"].iter().position(|usual| *usual == name)
    };
    branches
        .min_by_key(|found| usual(found.name.as_str()).unwrap_or(usize::MAX))
        .map(|found| found.name.clone())
}

fn lines(bytes: &[u8]) -> Result<Vec<String>, WireError> {
    let mut packets = Packets::default();
    packets.push(bytes);
    let mut lines = Vec::new();
    while let Some(packet) = packets.take()? {
        if let Packet::Data(data) = packet {
            lines.push(line(&data)?.to_owned());
        }
    }
    if packets.is_amid() { Err(WireError::BrokenOff) } else { Ok(lines) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    const ABILITIES: &str = "multi_ack side-band-64k ofs-delta thin-pack";

    fn advertisement(lines: &[String]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&mut bytes, b"# service=git-upload-pack\n");
        bytes.extend_from_slice(b"0000");
        lines.iter().for_each(|line| encode(&mut bytes, format!("{line}\n").as_bytes()));
        bytes.extend_from_slice(b"0000");
        bytes
    }

    #[test]
    fn the_refs_come_with_the_advertisement() {
        for version in [vec![], vec!["version 1".to_owned()]] {
            let mut lines = version;
            lines.extend([
                format!("{A} HEAD\0{ABILITIES} symref=HEAD:refs/heads/next"),
                format!("{A} refs/heads/next"),
                format!("{A} refs/heads/a..b"),
                format!("{B} refs/pull/1/head"),
                format!("{B} refs/tags/v1"),
                format!("{A} refs/tags/v1^{{}}"),
            ]);
            let found = OldServer::parse(&advertisement(&lines)).expect("refs");
            assert_eq!(found.head.map(|head| head.to_string()), Some("refs/heads/next".to_owned()));
            let refs: Vec<_> = found
                .refs
                .iter()
                .map(|one| (one.name.as_str(), one.commit().to_string()))
                .collect();
            assert_eq!(refs, [("refs/heads/next", A.to_owned()), ("refs/tags/v1", A.to_owned())]);
        }
    }

    #[test]
    fn a_head_that_is_not_told_is_guessed() {
        let of = |lines: &[String]| {
            OldServer::parse(&advertisement(lines)).map(|found| found.head.map(|it| it.to_string()))
        };
        let lines = |names: [&str; 2]| {
            let named = names.map(|name| format!("{A} refs/heads/{name}"));
            [&[format!("{A} HEAD\0{ABILITIES}")], &named[..]].concat()
        };
        assert_eq!(of(&lines(["aside", "master"])), Ok(Some("refs/heads/master".to_owned())));
        assert_eq!(of(&lines(["aside", "other"])), Ok(Some("refs/heads/aside".to_owned())));
        let empty = format!("{} capabilities^{{}}\0{ABILITIES}", "0".repeat(40));
        assert_eq!(of(&[empty]), Ok(None));
    }

    #[test]
    fn servers_that_lack_something_are_refused() {
        let of =
            |abilities: &str| OldServer::parse(&advertisement(&[format!("{A} HEAD\0{abilities}")]));
        assert_eq!(of("side-band ofs-delta"), Err(WireError::Version));
        let other = of("side-band-64k ofs-delta object-format=sha256");
        assert_eq!(other, Err(WireError::ObjectFormat("sha256".to_owned())));
        assert_eq!(OldServer::parse(b"<!DOCTYPE html>"), Err(WireError::NoPackets));
        assert_eq!(
            OldServer::parse(&advertisement(&["version 2".to_owned()])),
            Err(WireError::Version)
        );
        assert_eq!(OldServer::parse(b"0010vers"), Err(WireError::BrokenOff));
        let bad = advertisement(&[format!("x HEAD\0{ABILITIES}")]);
        assert!(matches!(OldServer::parse(&bad), Err(WireError::Unknown(_))));
    }

    #[test]
    fn only_the_first_want_has_the_abilities() {
        let lines = [format!("{A} HEAD\0{ABILITIES}")];
        let server = OldServer::parse(&advertisement(&lines)).expect("a server");
        let oids = [A, B].map(|oid| oid.parse::<Oid>().expect("an id"));
        let body = String::from_utf8(server.fetch(&oids, &oids[..1])).expect("text");
        assert_eq!(body.matches(" thin-pack ").count(), 1);
        let rest: String = body.lines().skip(1).collect();
        assert_eq!(rest, format!("0032want {B}00000032have {A}0009done"));
    }
}
