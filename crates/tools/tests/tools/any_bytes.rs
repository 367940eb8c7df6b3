//! Any bytes in, valid bounded text out.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..200),
        2 => "[a-z é🦀\t]{0,60}\n".prop_map(String::into_bytes),
        1 => Just(vec![b'x'; 3_000]),
        1 => Just(vec![0xff; 100]),
        1 => Just("é\n".repeat(200).into_bytes()),
        1 => Just(b"\r\n\x1b[1m\0".to_vec()),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn is_bounded(settled: &Settlement, limits: Limits) -> Result<(), TestCaseError> {
    prop_assert!(settled.output.len() <= limits.max_bytes(), "{} bytes", settled.output.len());
    let lines = settled.output.lines().count();
    prop_assert!(lines <= limits.max_lines(), "{lines} lines");
    prop_assert!(!settled.output.contains('\0'));
    prop_assert!(settled.title.chars().count() <= 80);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn whatever_a_file_holds_results_are_valid_and_bounded(
        content in bytes(), name in prop::collection::vec(1_u8..=255, 1..40), max_lines in 16_usize..60, max_bytes in 2_048_usize..6_000,
    ) {
        let mut place = Place::with_web(&[]);
        place.context.limits = Limits::new(max_lines, max_bytes);
        let limits = place.context.limits;
        std::fs::write(place.root().join("file"), &content).unwrap();
        let name: Vec<u8> = name.into_iter().filter(|byte| *byte != b'/').collect();
        let odd = place.root().join(std::ffi::OsStr::from_bytes(&name));
        let _not_every_name_can_be = std::fs::write(odd, &content);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for (tool, arguments) in [
            ("read", json!({"path": "file"})),
            ("read", json!({"path": "file", "offset": 2, "limit": 3})),
            ("read", json!({"path": "."})),
            ("read", json!({"path": String::from_utf8_lossy(&name)})),
            ("grep", json!({"pattern": "."})),
            ("grep", json!({"pattern": "[^x]|x{3}", "path": "file"})),
            ("glob", json!({"pattern": "**"})),
            ("edit", json!({"path": "file", "old": "é", "new": "e", "all": true})),
            ("apply_patch", json!({"patch": "*** Begin Patch\n*** Update File: file\n@@\n-é\n+e\n*** End Patch"})),
            ("shell", json!({"command": "cat file; cat file >&2"})),
        ] {
            let settled = runtime.block_on(place.settled(tool, arguments));
            is_bounded(&settled, limits)?;
        }
    }
}

/// Returns the most memory that this process has had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells it");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("the peak");
    let kib = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    kib.expect("a number") * 1024
}

// nextest runs each test in a process of its own, so that the peak is this test's.
#[tokio::test]
async fn reading_a_gibibyte_takes_little_memory() {
    const GIBIBYTE: u64 = 1024 * 1024 * 1024;
    let place = Place::new();
    let path = place.root().join("large");
    // Text, then a gap of zeros that is one endless line, then text.
    std::fs::write(&path, "first\n".repeat(3_000)).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"\nlast line\n", GIBIBYTE).unwrap();
    let before = peak();
    let text = place.ok("read", json!({"path": "large"})).await;
    assert!(
        text.contains("1996: first") && text.contains("go on with offset=1997"),
        "{}",
        text.len()
    );
    let text = place.ok("read", json!({"path": "large", "offset": 3_000})).await;
    assert!(
        text.contains("3000: first\n") && text.ends_with("(end: 3002 lines in all)"),
        "{}",
        &text[text.len() - 60..]
    );
    assert!(text.contains("3002: last line"));
    let grown = peak() - before;
    assert!(grown < 64 * 1024 * 1024, "{grown} bytes more");
}
