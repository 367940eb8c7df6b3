//! Whether a pack and its index are whole and belong together.

use std::io::{self, Read, Seek, SeekFrom};

use git_wire::Oid;
use sha1::{Digest, Sha1};

/// The bytes of a SHA-1.
const HASH: usize = 20;

/// Returns whether `index` is the whole index of the pack `id`, and `pack` that whole pack. Both end with the SHA-1 of
/// all before; the pack's is its id, and stands before the index's own (gitformat-pack). That finds damage. It does not
/// find an index that somebody made to lie.
///
/// # Errors
/// When a file cannot be read.
pub fn belongs(
    mut pack: impl Read + Seek,
    mut index: impl Read + Seek,
    id: Oid,
) -> io::Result<bool> {
    let id = id.to_string();
    if seal(&mut index)?.is_none_or(|end| hex(&end[..HASH]) != id) {
        return Ok(false);
    }
    Ok(seal(&mut pack)?.is_some_and(|end| hex(&end[HASH..]) == id))
}

/// Returns the last 40 bytes, if the last 20 are the SHA-1 of all before them.
fn seal(file: &mut (impl Read + Seek)) -> io::Result<Option<[u8; 2 * HASH]>> {
    let bytes = file.seek(SeekFrom::End(0))?;
    let Some(hashed) = bytes.checked_sub(HASH as u64).filter(|hashed| *hashed >= HASH as u64)
    else {
        return Ok(None);
    };
    file.rewind()?;
    let (mut hash, mut piece) = (Sha1::new(), vec![0; 64 * 1024]);
    let mut body = file.by_ref().take(hashed);
    loop {
        match body.read(&mut piece)? {
            0 => break,
            read => hash.update(&piece[..read]),
        }
    }
    let mut end = [0; 2 * HASH];
    file.seek(SeekFrom::End(-(2 * HASH as i64)))?;
    file.read_exact(&mut end)?;
    Ok((hash.finalize()[..] == end[HASH..]).then_some(end))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;

    fn sealed(body: &[u8]) -> Vec<u8> {
        [body, &Sha1::digest(body)[..]].concat()
    }

    fn id(pack: &[u8]) -> Oid {
        hex(&pack[pack.len() - HASH..]).parse().expect("an id")
    }

    fn belong(pack: &[u8], index: &[u8], id: Oid) -> bool {
        belongs(Cursor::new(pack), Cursor::new(index), id).expect("read")
    }

    proptest! {
        #[test]
        fn one_changed_byte_is_found(
            piece in proptest::collection::vec(any::<u8>(), 20..1_000),
            times in 1_usize..200,
            table in proptest::collection::vec(any::<u8>(), 0..2_000),
            at in any::<proptest::sample::Index>(),
            of_pack in any::<bool>(),
        ) {
            let pack = sealed(&piece.repeat(times));
            let index = sealed(&[&table[..], &pack[pack.len() - HASH..]].concat());
            let known = id(&pack);
            prop_assert!(belong(&pack, &index, known));
            let (mut pack, mut index) = (pack, index);
            let damaged = if of_pack { &mut pack } else { &mut index };
            let at = at.index(damaged.len());
            damaged[at] ^= 1;
            prop_assert!(!belong(&pack, &index, known));
        }
    }

    #[test]
    fn an_index_of_another_pack_does_not_belong() {
        let [one, two] = [b'1', b'2'].map(|byte| sealed(&[byte; 50]));
        let index = sealed(&two[two.len() - HASH..]);
        assert!(belong(&two, &index, id(&two)));
        assert!(!belong(&one, &index, id(&one)));
        assert!(!belong(&one, &index, id(&two)));
        assert!(!belong(b"", b"", id(&one)));
    }
}
