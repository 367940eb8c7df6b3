use std::io::{Seek, Write};

use futures::TryStreamExt;

use super::*;

fn key(name: &str) -> BlobKey {
    BlobKey::new("org-1", "tool-output", name).unwrap()
}

#[tokio::test]
async fn what_was_put_is_had_back_whole_and_in_ranges() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::in_folder(folder.path()).unwrap();
    blobs.put(&key("tool_1"), Bytes::from_static(b"0123456789")).await.unwrap();
    assert_eq!(blobs.get(&key("tool_1")).await.unwrap(), "0123456789");
    assert_eq!(blobs.get_range(&key("tool_1"), 2..5).await.unwrap(), "234");
    assert_eq!(blobs.get_range(&key("tool_1"), 8..99).await.unwrap(), "89");
    assert_eq!(blobs.get_range(&key("tool_1"), 99..100).await.unwrap(), "");
    assert!(folder.path().join("o/org-1/tool-output/tool_1").is_file());
}

#[tokio::test]
async fn a_stored_name_never_changes_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::in_folder(folder.path()).unwrap();
    let put =
        async |text: &'static str| blobs.put(&key("a"), Bytes::from_static(text.as_bytes())).await;
    put("one").await.unwrap();
    put("one").await.expect("the same again");
    for other in ["two", "longer"] {
        assert!(matches!(put(other).await, Err(BlobError::Taken(_))), "{other}");
    }
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"two").unwrap();
    file.rewind().unwrap();
    assert!(matches!(blobs.put_file(&key("a"), file).await, Err(BlobError::Taken(_))));
    assert_eq!(blobs.get(&key("a")).await.unwrap(), "one");
    let is_listed = || async { blobs.list("org-1", "tool-output").try_collect::<Vec<_>>().await };
    let before = is_listed().await.unwrap()[0].stored_ms;
    std::thread::sleep(std::time::Duration::from_millis(20));
    blobs.renew(&key("a"), Bytes::from_static(b"one")).await.unwrap();
    assert!(is_listed().await.unwrap()[0].stored_ms > before, "its age begins anew");
}

#[tokio::test]
async fn a_file_is_streamed_part_by_part() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::in_folder(folder.path()).unwrap();
    for size in [0, 10, PART_BYTES, PART_BYTES + 3, 2 * PART_BYTES] {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..size).map(|index| (index % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        file.rewind().unwrap();
        assert_eq!(blobs.put_file(&key(&format!("file-{size}")), file).await.unwrap(), size);
        assert_eq!(blobs.get(&key(&format!("file-{size}"))).await.unwrap(), bytes);
    }
}

#[tokio::test]
async fn a_missing_blob_is_told_apart_from_a_broken_store() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::in_folder(folder.path()).unwrap();
    for missing in [
        blobs.get(&key("none")).await.map(drop),
        blobs.get_range(&key("none"), 0..1).await.map(drop),
    ] {
        assert!(matches!(missing, Err(BlobError::NotFound(_))), "{missing:?}");
    }
    // A file in place of the folder.
    std::fs::write(folder.path().join("o"), "in the way").unwrap();
    let broken = blobs.put(&key("any"), Bytes::new()).await;
    assert!(matches!(broken, Err(BlobError::Store { action: "store", .. })), "{broken:?}");
}

#[tokio::test]
async fn what_is_listed_is_there_and_what_is_deleted_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::in_folder(folder.path()).unwrap();
    let names = async |org: &str, kind: &str| -> Vec<String> {
        let listed: Result<Vec<Listed>, _> = blobs.list(org, kind).try_collect().await;
        let mut names: Vec<_> = listed.unwrap().into_iter().map(|blob| blob.name).collect();
        names.sort();
        names
    };
    assert_eq!(blobs.organisations().await.unwrap(), [""; 0]);
    assert_eq!(names("org-1", "tool-output").await, [""; 0]);
    for name in ["one", "two"] {
        blobs.put(&key(name), Bytes::new()).await.unwrap();
    }
    let other = BlobKey::new("org-2", "snapshot", "three").unwrap();
    blobs.put(&other, Bytes::new()).await.unwrap();
    let mut organisations = blobs.organisations().await.unwrap();
    organisations.sort();
    assert_eq!(organisations, ["org-1", "org-2"]);
    assert_eq!(names("org-1", "tool-output").await, ["one", "two"]);
    assert_eq!(names("org-1", "snapshot").await, [""; 0]);
    for _ in 0..2 {
        blobs.delete(&key("one")).await.unwrap();
        assert_eq!(names("org-1", "tool-output").await, ["two"]);
    }
    assert!(matches!(blobs.get(&key("one")).await, Err(BlobError::NotFound(_))));
    assert_eq!(names("org-2", "snapshot").await, ["three"]);
}

#[test]
fn no_name_leaves_its_organisation() {
    for bad in ["", "..", ".x", "a/b", "a\\b", "é", "a b", &"x".repeat(201)] {
        for parts in [[bad, "k", "n"], ["o", bad, "n"], ["o", "k", bad]] {
            let [org, kind, name] = parts;
            assert!(matches!(BlobKey::new(org, kind, name), Err(BlobError::BadName(_))));
        }
    }
}

// Finding security 16: other users of the machine could read prompts and results.
#[test]
fn the_folder_is_closed_to_other_users() {
    use std::os::unix::fs::PermissionsExt;
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("data/blobs");
    Blobs::in_folder(&folder).unwrap();
    for made in [parent.path().join("data"), folder] {
        assert_eq!(std::fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
