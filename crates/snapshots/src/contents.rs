//! The contents list of one tree: the place of each of its objects. It is read instead of the index of every
//! pack.
//!
//! ```text
//! magic │ packs: (length, name) … │ objects: (id, number of its pack, offset, stored bytes, bytes) …
//! ```
//!
//! The list is an object in the pack that came with the tree; the pack's name ends with the list's id.

use crate::object::ObjectId;
use crate::pack::Span;

const MAGIC: &[u8; 8] = b"oclist\x001";
/// The mark before the id in a pack's name.
const MARK: &str = "-m";
const ENTRY_BYTES: usize = 32 + 4 + 8 + 4 + 4;

/// Pack names, and objects by the number of their pack.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) packs: Vec<String>,
    pub(crate) objects: Vec<(ObjectId, usize, Span)>,
}

impl Contents {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let number = |of: usize| u32::try_from(of).unwrap_or(u32::MAX).to_be_bytes();
        bytes.extend_from_slice(&number(self.packs.len()));
        for pack in &self.packs {
            bytes.extend_from_slice(&number(pack.len()));
            bytes.extend_from_slice(pack.as_bytes());
        }
        bytes.reserve(self.objects.len() * ENTRY_BYTES);
        for (id, pack, span) in &self.objects {
            bytes.extend_from_slice(&id.0);
            bytes.extend_from_slice(&number(*pack));
            bytes.extend_from_slice(&span.offset.to_be_bytes());
            bytes.extend_from_slice(&span.stored.to_be_bytes());
            bytes.extend_from_slice(&span.bytes.to_be_bytes());
        }
        bytes
    }

    /// Parses a contents list; `None` if the bytes are not one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        fn number(bytes: &mut &[u8]) -> Option<usize> {
            let (number, rest) = bytes.split_first_chunk::<4>()?;
            *bytes = rest;
            usize::try_from(u32::from_be_bytes(*number)).ok()
        }
        let mut bytes = bytes.strip_prefix(MAGIC)?;
        let count = number(&mut bytes)?;
        let mut packs = Vec::new();
        for _ in 0..count {
            let length = number(&mut bytes)?;
            let (name, rest) = bytes.split_at_checked(length)?;
            packs.push(String::from_utf8(name.to_vec()).ok()?);
            bytes = rest;
        }
        let (entries, rest) = bytes.as_chunks::<ENTRY_BYTES>();
        let objects = entries.iter().map(|entry| {
            let (id, mut rest) = entry.split_first_chunk::<32>()?;
            let pack = number(&mut rest)?;
            let (offset, rest) = rest.split_first_chunk::<8>()?;
            let (stored, bytes) = rest.split_first_chunk::<4>()?;
            let span = Span {
                offset: u64::from_be_bytes(*offset),
                stored: u32::from_be_bytes(*stored),
                bytes: u32::from_be_bytes(bytes.try_into().ok()?),
            };
            (pack < packs.len()).then_some((ObjectId(*id), pack, span))
        });
        let objects = objects.collect::<Option<Vec<_>>>()?;
        rest.is_empty().then_some(Self { packs, objects })
    }
}

/// Returns the name of a pack with a contents list.
pub(crate) fn name_with(name: &str, contents: ObjectId) -> String {
    format!("{name}{MARK}{contents}")
}

/// Returns the id of a pack's contents list, by the pack's name, if it has one.
pub(crate) fn of_name(name: &str) -> Option<ObjectId> {
    let (_, id) = name.rsplit_once(MARK)?;
    id.parse::<crate::object::TreeId>().ok().map(|id| id.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_had_back_whole_or_not_at_all() {
        let span = Span { offset: 7, stored: 8, bytes: 9 };
        let contents = Contents {
            packs: vec!["a".into(), String::new()],
            objects: vec![(ObjectId::of(b"x"), 1, span), (ObjectId::of(b"y"), 0, span)],
        };
        let bytes = contents.bytes();
        for cut in 0..bytes.len() {
            // Only the hash in the pack's name detects whole objects missing at the end.
            assert_ne!(Contents::parse(&bytes[..cut]).as_ref(), Some(&contents), "{cut}");
        }
        assert_eq!(Contents::parse(&bytes), Some(contents));
        let outside = Contents { packs: vec![], objects: vec![(ObjectId::of(b"x"), 0, span)] };
        assert_eq!(Contents::parse(&outside.bytes()), None);
    }

    #[test]
    fn a_name_tells_whether_a_pack_has_contents() {
        let id = ObjectId::of(b"x");
        let name = name_with("loc_1-2-3-abc", id);
        assert_eq!((of_name(&name), of_name("loc_1-2-m3-abc")), (Some(id), None));
    }
}
