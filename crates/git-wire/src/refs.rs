use crate::name::RefName;
use crate::oid::Oid;
use crate::packet::{Packet, Packets, WireError, line, shown};

/// The most branches and tags of a repository.
pub const MAX_REFS: usize = 200_000;

/// A branch or a tag.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its full name.
    pub name: RefName,
    /// The object that it names: a commit, or the object of an annotated tag.
    pub oid: Oid,
    /// The object behind an annotated tag.
    pub peeled: Option<Oid>,
}

impl Listed {
    /// Returns the commit that it leads to.
    #[must_use]
    pub fn commit(&self) -> Oid {
        self.peeled.unwrap_or(self.oid)
    }
}

/// The answer to [`crate::ls_refs`], read piece by piece.
#[derive(Debug, Default)]
pub struct RefList {
    packets: Packets,
    head: Option<RefName>,
    refs: Vec<Listed>,
    is_whole: bool,
}

impl RefList {
    /// Takes the next piece.
    ///
    /// # Errors
    /// The answer is not understood, refuses, or is too long. Names that git itself refuses are left out.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        self.packets.push(bytes);
        while let Some(packet) = self.packets.take()? {
            match packet {
                Packet::Data(data) => self.take(line(&data)?)?,
                Packet::Flush => self.is_whole = true,
                Packet::Delimiter | Packet::End => {}
            }
        }
        Ok(())
    }

    fn take(&mut self, text: &str) -> Result<(), WireError> {
        let unknown = || WireError::Unknown(shown(text));
        let mut words = text.split(' ');
        let (oid, name) = words.next().zip(words.next()).ok_or_else(unknown)?;
        let oid: Oid = oid.parse().map_err(|_| unknown())?;
        let (mut peeled, mut target) = (None, None);
        for word in words {
            match word.split_once(':') {
                Some(("peeled", oid)) => peeled = Some(oid.parse().map_err(|_| unknown())?),
                Some(("symref-target", name)) => target = Some(name),
                _ => {}
            }
        }
        if name == "HEAD" {
            self.head = target.and_then(|name| name.parse().ok());
            return Ok(());
        }
        let Ok(name) = name.parse() else { return Ok(()) };
        if self.refs.len() >= MAX_REFS {
            return Err(WireError::TooManyRefs(MAX_REFS));
        }
        self.refs.push(Listed { name, oid, peeled });
        Ok(())
    }

    /// Ends the answer and returns the branch that HEAD names, with all branches and tags in the order of their names.
    ///
    /// # Errors
    /// [`WireError::BrokenOff`].
    pub fn finish(mut self) -> Result<(Option<RefName>, Vec<Listed>), WireError> {
        if !self.is_whole || self.packets.is_amid() {
            return Err(WireError::BrokenOff);
        }
        self.refs.sort_unstable();
        self.refs.dedup_by(|later, earlier| later.name == earlier.name);
        Ok((self.head, self.refs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    fn answer(lines: &[String]) -> Vec<u8> {
        let mut bytes = Vec::new();
        lines.iter().for_each(|line| encode(&mut bytes, format!("{line}\n").as_bytes()));
        bytes.extend_from_slice(b"0000");
        bytes
    }

    #[test]
    fn refs_are_read_and_strange_ones_left_out() {
        let bytes = answer(&[
            format!("{A} HEAD symref-target:refs/heads/main"),
            format!("{A} refs/heads/main"),
            format!("{B} refs/tags/v1 peeled:{A}"),
            format!("{B} refs/heads/a..b"),
        ]);
        let mut list = RefList::default();
        bytes.chunks(7).for_each(|piece| list.push(piece).expect("refs"));
        let (head, refs) = list.finish().expect("whole");
        assert_eq!(head.map(|head| head.to_string()), Some("refs/heads/main".to_owned()));
        let names: Vec<_> =
            refs.iter().map(|found| (found.name.as_str(), found.commit().to_string())).collect();
        assert_eq!(names, [("refs/heads/main", A.to_owned()), ("refs/tags/v1", A.to_owned())]);
    }

    #[test]
    fn half_an_answer_and_nonsense_are_errors() {
        let bytes = answer(&[format!("{A} refs/heads/main")]);
        let mut list = RefList::default();
        list.push(&bytes[..bytes.len() - 4]).expect("half");
        assert_eq!(list.finish(), Err(WireError::BrokenOff));
        let mut list = RefList::default();
        assert!(matches!(list.push(&answer(&["x y".to_owned()])), Err(WireError::Unknown(_))));
    }
}
