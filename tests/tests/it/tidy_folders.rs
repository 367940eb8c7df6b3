//! A house rule about folders in which commands write.

use anyhow::{Result, ensure};

use crate::tidy::rust_files;

/// The calls that recurse into a folder, once for each level, when they remove it.
const RECURSIVE: [&str; 3] = ["remove_dir_all", "TempDir", "tempdir"];

/// Code that runs before any command, or on a machine of its author.
const NO_COMMAND_WRITES_THERE: [&str; 2] =
    ["services/console/build.rs", "crates/boot/src/postgres/folder.rs"];

/// Crates whose folders commands and tenants write, or whose process serves them.
const SERVICE: [&str; 13] = [
    "crates/api/",
    "crates/blobs/",
    "crates/boot/",
    "crates/checkouts/",
    "crates/egress/",
    "crates/placement/",
    "crates/sandbox/",
    "crates/session/",
    "crates/snapshots/",
    "crates/tools/",
    "crates/workspaces/",
    "services/",
    "crates/store/",
];

/// Returns the code of a file without its tests.
fn code_of<'t>(path: &str, text: &'t str) -> &'t str {
    let is_test = ["/tests/", "/examples/", "/bin/"].iter().any(|part| path.contains(part))
        || path.ends_with("/tests.rs");
    if is_test { "" } else { text.split("#[cfg(test)]").next().unwrap_or_default() }
}

/// Why: such a call used up its stack on a tree of 18,000 levels, which one command makes. That ended the whole process, and
/// again at each start (security-3 C2).
#[test]
fn folders_of_commands_are_removed_without_recursion() -> Result<()> {
    for (path, text) in rust_files()? {
        let is_ours = SERVICE.iter().any(|folder| path.starts_with(folder));
        if !is_ours || NO_COMMAND_WRITES_THERE.contains(&path.as_str()) {
            continue;
        }
        let code =
            code_of(&path, &text).lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code.filter(|line| RECURSIVE.iter().any(|call| line.contains(call))) {
            let makes_scratch =
                path == "crates/sandbox/src/removal.rs" && line.contains("tempdir_in(parent)");
            ensure!(
                makes_scratch,
                "{path} removes a folder level by level: use sandbox::remove_tree, empty_folder or ScratchFolder: {line}"
            );
        }
    }
    Ok(())
}
