//! The protocol against git's own server.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use git_wire::{Advertised, PackEvent, PackReader, RefList, fetch, ls_refs};

fn git(directory: &Path, args: &[&str]) -> String {
    let ran = Command::new("git")
        .args(["-c", "user.name=A", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"])
        .args(args)
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .expect("git");
    assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("text").trim().to_owned()
}

/// Runs `git upload-pack` for one request of version 2.
fn serve(repository: &Path, args: &[&str], body: &[u8]) -> Vec<u8> {
    let mut server = Command::new("git")
        .args(["upload-pack", "--stateless-rpc"])
        .args(args)
        .arg(repository)
        .env("GIT_PROTOCOL", "version=2")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("git");
    server.stdin.take().unwrap().write_all(body).expect("a request");
    server.wait_with_output().expect("an answer").stdout
}

fn pack(answer: &[u8]) -> Vec<u8> {
    let (mut reader, mut pack) = (PackReader::default(), Vec::new());
    for piece in answer.chunks(1000) {
        for event in reader.push(piece).expect("an answer") {
            if let PackEvent::Bytes(bytes) = event {
                pack.extend(bytes);
            }
        }
    }
    assert_eq!(reader.finish(), Ok(pack.len() as u64));
    pack
}

fn index(repository: &Path, pack: &[u8]) {
    let mut indexer = Command::new("git")
        .args(["index-pack", "--strict", "--stdin"])
        .current_dir(repository)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("git");
    indexer.stdin.take().unwrap().write_all(pack).expect("a pack");
    assert!(indexer.wait().expect("an end").success(), "git takes the pack");
}

#[test]
fn a_repository_is_read_from_gits_own_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let (origin, copy) = (folder.path().join("origin"), folder.path().join("copy"));
    for made in [&origin, &copy] {
        std::fs::create_dir(made).expect("a folder");
        git(made, &["init", "-q"]);
    }
    git(&origin, &["commit", "-q", "--allow-empty", "-m", "one"]);
    git(&origin, &["tag", "-a", "v1", "-m", "first"]);
    Advertised::parse(&serve(&origin, &["--http-backend-info-refs"], b"")).expect("version 2");

    let mut list = RefList::default();
    list.push(&serve(&origin, &[], &ls_refs())).expect("refs");
    let (head, refs) = list.finish().expect("whole");
    assert_eq!(head.expect("a branch").branch(), Some("main"));
    let commit = git(&origin, &["rev-parse", "HEAD"]);
    assert!(refs.iter().all(|found| found.commit().to_string() == commit), "{refs:?}");
    assert_eq!(refs.len(), 2);
    let first: Vec<_> = refs.iter().map(|found| found.oid).collect();
    index(&copy, &pack(&serve(&origin, &[], &fetch(&first, []))));
    assert_eq!(git(&copy, &["cat-file", "-t", &commit]), "commit");

    std::fs::write(origin.join("file"), "text").expect("a file");
    git(&origin, &["add", "file"]);
    git(&origin, &["commit", "-q", "-m", "two"]);
    let second = git(&origin, &["rev-parse", "HEAD"]).parse().expect("an id");
    let more = pack(&serve(&origin, &[], &fetch(&[second], &first)));
    assert_eq!(u32::from_be_bytes(more[8..12].try_into().unwrap()), 3, "only what is new");
    index(&copy, &more);
    assert_eq!(git(&copy, &["log", "--format=%s", &second.to_string()]), "two\none");
}
