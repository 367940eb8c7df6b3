//! The texts of a path that rules are compared with. Looks at the text only.

use domain::is_secret_path;

/// The home of commands, as their cell shows it.
const HOME: &str = "/home/agent";

/// Returns the path in full, without `.`, `..` and doubled slashes.
pub(super) fn full(path: &str, directory: &str) -> String {
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("{directory}/{path}") };
    let mut steps: Vec<&str> = Vec::new();
    for step in whole.split('/') {
        match step {
            "" | "." => {}
            ".." => {
                steps.pop();
            }
            step => steps.push(step),
        }
    }
    format!("/{}", steps.join("/"))
}

/// Returns the path as it was given, from the directory, and in full.
pub(super) fn forms(path: &str, directory: &str) -> Vec<String> {
    let whole = full(path, directory);
    let short = below(&whole, directory).filter(|short| !short.is_empty()).map(str::to_owned);
    [Some(path.to_owned()), short, Some(whole)].into_iter().flatten().collect()
}

/// Returns a path of a command that starts in `workdir`, in full, as it is from the directory.
pub(super) fn rebase_path(path: &str, workdir: &str, directory: &str) -> String {
    if path.starts_with(['/', '~']) {
        return path.to_owned();
    }
    let whole = full(path, workdir);
    match below(&whole, directory) {
        Some("") => ".".to_owned(),
        Some(short) => short.to_owned(),
        None => whole,
    }
}

/// Returns where `cd` leads from a place, in full.
pub(super) fn enter_folder(target: &str, place: &str) -> String {
    match target.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            full(&format!("{HOME}{rest}"), "/")
        }
        Some(_) | None => full(target, place),
    }
}

/// Returns the other spellings of a full path or its pattern, if it is in the home of commands.
pub(super) fn list_home_spellings(whole: &str) -> Vec<String> {
    let rest = whole.strip_prefix(HOME);
    let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let spellings = |rest: &str| ["~", "$HOME", "${HOME}"].map(|home| format!("{home}{rest}"));
    rest.into_iter().flat_map(spellings).collect()
}

/// Returns the rest of a full path below the directory; empty for the directory itself.
fn below<'a>(whole: &'a str, directory: &str) -> Option<&'a str> {
    let directory = full(directory, "/");
    let rest = whole.strip_prefix(directory.trim_end_matches('/'))?;
    rest.strip_prefix('/').or(rest.is_empty().then_some(rest))
}

/// Returns the pattern of the directory outside that a path leads to, if it leaves the session's. `is_directory`: the path is
/// that directory, and no file in it.
pub(super) fn outside(path: &str, directory: &str, is_directory: bool) -> Option<String> {
    if let Some(home) = path.strip_prefix('~') {
        let parent = home.rsplit_once('/').map_or("", |(parent, _)| parent);
        return Some(format!("~{}/*", if is_directory { home } else { parent }));
    }
    let whole = full(path, directory);
    if below(&whole, directory).is_some() {
        return None;
    }
    let parent = whole.rsplit_once('/').map_or("", |(parent, _)| parent);
    // Never the pattern of everything.
    let place = if is_directory || parent.is_empty() { &whole } else { parent };
    Some(format!("{}/*", place.trim_end_matches('/')))
}

/// Returns the pattern of a path that may be saved for an action: all paths, but for names where secrets usually are only the
/// very path.
pub(super) fn saved(action: &str, path: &str) -> Option<String> {
    if action == "read" && is_secret_path(path) {
        return (!path.contains(['*', '?'])).then(|| path.to_owned());
    }
    Some("*".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_all_its_names() {
        assert_eq!(forms("x/../a", "/w"), ["x/../a", "a", "/w/a"]);
        assert_eq!(forms("/w//a/", "/w/"), ["/w//a/", "a", "/w/a"]);
        assert_eq!(forms("../a", "/w"), ["../a", "/a"]);
        assert_eq!(forms(".", "/w"), [".", "/w"]);
    }

    #[test]
    fn a_path_is_seen_from_the_directory_again() {
        for (path, workdir, expected) in [
            ("a", "/w/sub", "sub/a"),
            ("../a", "/w/sub", "a"),
            ("..", "/w/sub", "."),
            ("../../a", "/w/sub", "/a"),
            ("a", "/x", "/x/a"),
            ("/a", "/w/sub", "/a"),
            ("~/a", "/w/sub", "~/a"),
        ] {
            assert_eq!(rebase_path(path, workdir, "/w"), expected, "{path}");
        }
    }

    #[test]
    fn a_path_that_leaves_says_where_it_goes() {
        for (path, is_directory, expected) in [
            ("a/../b", false, None),
            ("/w", true, None),
            ("/w/../w/a", false, None),
            ("/wx/a", false, Some("/wx/*")),
            ("../a/b", false, Some("/a/*")),
            ("/etc/passwd", false, Some("/etc/*")),
            ("/etc", false, Some("/etc/*")),
            ("/etc", true, Some("/etc/*")),
            ("a/../../..", true, Some("/*")),
            ("~/x/y", false, Some("~/x/*")),
            ("~", true, Some("~/*")),
            ("~root/x", false, Some("~root/*")),
        ] {
            assert_eq!(outside(path, "/w", is_directory).as_deref(), expected, "{path}");
        }
    }
}
