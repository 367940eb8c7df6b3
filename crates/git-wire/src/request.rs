//! The bodies of requests.

use crate::oid::Oid;
use crate::packet::encode;

/// This client's name for servers.
pub const AGENT: &str = "opencode-cloud";

fn command(name: &str) -> Vec<u8> {
    let mut body = Vec::new();
    encode(&mut body, format!("command={name}\n").as_bytes());
    encode(&mut body, format!("agent={AGENT}\n").as_bytes());
    encode(&mut body, b"object-format=sha1\n");
    body.extend_from_slice(b"0001");
    body
}

/// Returns the body that asks for HEAD, the branches and the tags.
#[must_use]
pub fn ls_refs() -> Vec<u8> {
    let mut body = command("ls-refs");
    for line in [
        "peel\n",
        "symrefs\n",
        "ref-prefix HEAD\n",
        "ref-prefix refs/heads/\n",
        "ref-prefix refs/tags/\n",
    ] {
        encode(&mut body, line.as_bytes());
    }
    body.extend_from_slice(b"0000");
    body
}

/// Returns the body that asks for one pack: everything that `wants` lead to and `haves` do not. The pack is whole: no object
/// in it is a change of one outside it.
#[must_use]
pub fn fetch<'a>(
    wants: impl IntoIterator<Item = &'a Oid>,
    haves: impl IntoIterator<Item = &'a Oid>,
) -> Vec<u8> {
    let mut body = command("fetch");
    encode(&mut body, b"ofs-delta\n");
    for want in wants {
        encode(&mut body, format!("want {want}\n").as_bytes());
    }
    for have in haves {
        encode(&mut body, format!("have {have}\n").as_bytes());
    }
    encode(&mut body, b"done\n");
    body.extend_from_slice(b"0000");
    body
}
