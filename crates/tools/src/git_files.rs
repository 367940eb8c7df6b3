//! The files of a person's checkout that git obeys outside of the sandbox: everything in a `.git`, and in a directory that has
//! the layout of a repository.

use std::path::{Component, Path};

use crate::files::LocationFiles;

/// Returns whether a component of the path is `.git`. In any case: some file systems tell no case from the other.
pub(crate) fn names_git(path: &Path) -> bool {
    let is_git = |component: Component<'_>| component.as_os_str().eq_ignore_ascii_case(".git");
    path.components().any(is_git)
}

/// Returns whether a file at `path` below the root would be in a directory that git takes for a repository, or would make it one.
pub(crate) fn is_of_repository(files: &LocationFiles, path: &Path) -> bool {
    path.ancestors().skip(1).any(|directory| {
        let next = path.strip_prefix(directory).ok().and_then(|rest| rest.components().next());
        has_layout(|name| {
            next.is_some_and(|next| next.as_os_str().eq_ignore_ascii_case(name))
                || files.has_entry(directory, name)
        })
    })
}

/// Returns whether a directory with these entries is a repository to git.
fn has_layout(has: impl Fn(&str) -> bool) -> bool {
    has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
}
