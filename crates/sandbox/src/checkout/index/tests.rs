use std::io::Write;
use std::path::Path;
use std::process::Command;

use super::*;

fn git(place: &Path, words: &[&str]) {
    let ended = Command::new("git").args(words).current_dir(place).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

fn file_with(index: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(index).unwrap();
    file
}

/// An index of version 2 or 4 with these entries: the bytes of each that it keeps, the rest of its path, its mode, and the length
/// that it says, if that is another one. With extensions behind them.
fn index_with(version: u32, entries: &[(usize, &str, u32, Option<u16>)], more: &[u8]) -> File {
    let mut bytes = b"DIRC".to_vec();
    bytes.extend(version.to_be_bytes());
    bytes.extend(u32::try_from(entries.len()).unwrap().to_be_bytes());
    let mut path = String::new();
    for (kept, rest, mode, said) in entries {
        let begun = bytes.len();
        let stripped = u8::try_from(path.len() - kept).unwrap();
        path = format!("{}{rest}", &path[..*kept]);
        bytes.extend([0; 24]);
        bytes.extend(mode.to_be_bytes());
        bytes.extend([0; 32]);
        bytes.extend(said.unwrap_or(u16::try_from(path.len()).unwrap()).to_be_bytes());
        if version == 4 {
            bytes.push(stripped);
            bytes.extend(rest.as_bytes());
            bytes.push(0);
        } else {
            bytes.extend(path.as_bytes());
            bytes.resize(bytes.len() + 8 - (bytes.len() - begun) % 8, 0);
        }
    }
    bytes.extend(more);
    bytes.extend([0; 20]);
    file_with(&bytes)
}

fn extension(name: &[u8], content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_be_bytes();
    [name, &length, content].concat()
}

#[test]
fn entries_of_each_version_of_an_index_are_read() {
    let oids = [("sha1", "1".repeat(40)), ("sha256", "1".repeat(64))];
    for (format, oid) in oids {
        for version in ["2", "3", "4"] {
            let folder = tempfile::tempdir().unwrap();
            let place = folder.path();
            git(place, &["init", "-q", &format!("--object-format={format}"), "."]);
            for name in ["a", "alpha/beta", "alpha/gamma", "z"] {
                let file = place.join(name);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, name).unwrap();
            }
            git(place, &["add", "-A"]);
            git(place, &["update-index", "--index-version", version]);
            let read = || std::fs::read(place.join(".git/index")).unwrap();
            let plain = file_with(&read());
            assert_eq!(check(&plain, &Unusual::default()), Ok(()), "{format}, {version}");
            for name in ["alpha/sub", "sub"] {
                let info = format!("160000,{oid},{name}");
                git(place, &["update-index", "--add", "--cacheinfo", &info]);
            }
            let index = read();
            let unusual = read_unusual(&file_with(&index));
            let expected = ["alpha/sub", "sub"].map(|path| (path.as_bytes().to_vec(), SUBMODULE));
            assert_eq!(unusual.0, expected.into(), "{format}, {version}");
            assert_eq!(check(&file_with(&index), &unusual), Ok(()));
            let refused = check(&file_with(&index), &Unusual::default());
            assert_eq!(refused, Err(Refusal::Submodule(b"alpha/sub".to_vec())));
            assert!(has_plain_names(&file_with(&index)));
            let cut = file_with(&index[..index.len() - 1]);
            assert_eq!(check(&cut, &unusual), Err(Refusal::Unreadable));
        }
    }
    assert_eq!(check(&file_with(b""), &Unusual::default()), Err(Refusal::Unreadable));
}

// Second look, 2: `git checkout .` wrote hooks and files outside of the checkout.
#[test]
fn entries_elsewhere_are_refused_unless_the_person_has_them() {
    let bad = [
        (".git/hooks/post-checkout", 0o100_755, Flaw::Git),
        ("../x", FILE, Flaw::Part),
        ("/etc/x", FILE, Flaw::Part),
        ("a/b/", 0o040_000, Flaw::Mode),
        ("a", 0o040_000, Flaw::Mode),
        ("a", 0o060_000, Flaw::Mode),
        (".gitmodules", LINK, Flaw::Modules),
    ];
    for version in [2, 4] {
        for (path, mode, flaw) in bad {
            let index = || index_with(version, &[(0, "0", FILE, None), (0, path, mode, None)], b"");
            let refused = Refusal::Entry(path.as_bytes().to_vec(), flaw);
            assert_eq!(check(&index(), &Unusual::default()), Err(refused), "{version}, {path}");
            assert!(!has_plain_names(&index()));
            assert_eq!(check(&index(), &read_unusual(&index())), Ok(()), "it is the person's");
        }
        // The same name as something else is another entry.
        let own = read_unusual(&index_with(version, &[(0, "a", 0o040_000, None)], b""));
        let now = index_with(version, &[(0, "a", 0o160_000, None)], b"");
        assert_eq!(check(&now, &own), Err(Refusal::Submodule(b"a".to_vec())));
    }
}

#[test]
fn paths_of_version_4_are_refused_as_they_are_decoded() {
    let parts = [(0, ".gi", FILE, None), (3, "t/hooks/x", FILE, None)];
    let refused = Refusal::Entry(b".git/hooks/x".to_vec(), Flaw::Git);
    assert_eq!(check(&index_with(4, &parts, b""), &Unusual::default()), Err(refused));
    // An entry that follows a flaw of the person's own is looked at from its beginning.
    let own = [(0, ".git/a", FILE, None)];
    let more = [(0, ".git/a", FILE, None), (5, "b", FILE, None)];
    let own = read_unusual(&index_with(4, &own, b""));
    let refused = Refusal::Entry(b".git/b".to_vec(), Flaw::Git);
    assert_eq!(check(&index_with(4, &more, b""), &own), Err(refused));
}

#[test]
fn an_index_that_git_may_read_in_another_way_is_refused() {
    let unreadable = Err(Refusal::Unreadable);
    let check = |index: File| check(&index, &Unusual::default());
    assert_eq!(check(index_with(2, &[(0, "abc", FILE, Some(1))], b"")), unreadable);
    assert_eq!(check(index_with(2, &[(0, "abc", FILE, Some(0x4003))], b"")), unreadable);
    let long = "x/".repeat(2100) + "x";
    assert_eq!(check(index_with(2, &[(0, &long, FILE, Some(0xfff))], b"")), unreadable);
    assert_eq!(check(index_with(2, &[], &extension(b"link", &[0; 20]))), unreadable);

    // A thread of git begins an entry of version 4 with nothing before it: here with `.git/x`.
    let entries = [(0, "a", FILE, None), (1, ".git/x", FILE, None)];
    let first = 12 + 62 + 3;
    let blocks = |rows: &[[u32; 2]]| {
        let rows = rows.iter().flatten().flat_map(|number| number.to_be_bytes());
        extension(b"IEOT", &[1_u32.to_be_bytes().to_vec(), rows.collect()].concat())
    };
    assert_eq!(check(index_with(4, &entries, b"")), Ok(()));
    assert_eq!(check(index_with(4, &entries, &blocks(&[[12, 1], [first, 1]]))), unreadable);
    assert_eq!(check(index_with(4, &entries, &blocks(&[[12, 2]]))), Ok(()));
    for rows in [&[[12, 1]][..], &[[13, 2]], &[[12, 2], [12, 2]], &[[12, 3]]] {
        assert_eq!(check(index_with(4, &entries, &blocks(rows))), unreadable, "{rows:?}");
    }
    let fresh = [(0, "a", FILE, None), (0, "b", FILE, None)];
    assert_eq!(check(index_with(4, &fresh, &blocks(&[[12, 1], [first, 1]]))), Ok(()));

    // Nor does it look for parts elsewhere than behind the entries.
    let end = |at: u32| extension(b"EOIE", &[&at.to_be_bytes()[..], &[0; 20]].concat());
    assert_eq!(check(index_with(4, &fresh, &end(first + 62 + 3))), Ok(()));
    assert_eq!(check(index_with(4, &fresh, &end(first))), unreadable);
}
