//! The folders of this crate, from the table of routes down to errors. Arrows only go down, and no two files use each
//! other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, iter};

/// The modules of the crate's root, from the top. A module may use those of lower layers.
const LAYERS: [&[&str]; 14] = [
    &["table"],
    &["surface"],
    &["act"],
    &["state"],
    &["follow"],
    &["render"],
    &["fold"],
    &["summaries"],
    &["changes"],
    &["homes", "kept", "shares", "spools", "wake"],
    &["view"],
    &["text"],
    &["error", "settings"],
    &["default_model", "origin", "principal", "site"],
];

/// The code of each module, by its path from the crate's root (`act::fork`), without comments and tests.
type Modules = BTreeMap<String, String>;

fn read(folder: &Path, path: &str, modules: &mut Modules) {
    for entry in fs::read_dir(folder).expect("the sources") {
        let entry = entry.expect("an entry").path();
        let stem = entry.file_stem().and_then(|stem| stem.to_str()).expect("a name");
        let module = if path.is_empty() { stem.to_owned() } else { format!("{path}::{stem}") };
        if entry.is_dir() {
            read(&entry, &module, modules);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&entry).expect("a source file");
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            modules.insert(module, code.collect::<Vec<_>>().join("\n"));
        }
    }
}

fn modules() -> Modules {
    let mut modules = Modules::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut modules);
    assert!(modules.len() > 60, "only {} modules were found", modules.len());
    modules
}

/// Returns the paths of the `use` statements in `code`, one per name, without aliases.
fn uses(code: &str) -> Vec<Vec<String>> {
    let statements = code.split(';').filter_map(|statement| {
        let start = statement.rfind("use ").filter(|at| {
            let before = statement[..*at].rsplit('\n').next().unwrap_or_default().trim();
            matches!(before, "" | "pub" | "pub(crate)" | "pub(super)")
        })?;
        Some(statement[start + 4..].split_whitespace().collect::<Vec<_>>().join(" "))
    });
    let names = statements.flat_map(|statement| {
        let (path, list) = statement.split_once("::{").unwrap_or((&statement, "self"));
        let list =
            list.trim_end_matches('}').split(',').map(str::trim).filter(|name| !name.is_empty());
        let name =
            |name: &str| format!("{path}::{}", name.split(" as ").next().unwrap_or_default());
        list.map(name).collect::<Vec<_>>()
    });
    let segments = |name: String| {
        name.split("::").filter(|segment| *segment != "self").map(str::to_owned).collect()
    };
    names.map(segments).collect()
}

/// Returns the module that defines the name `path`. A name that a parent re-exports is its child's.
fn definer(modules: &Modules, path: &[String]) -> Option<String> {
    let mut at = String::new();
    for segment in path {
        let parent = if at.is_empty() { "lib" } else { &at };
        let join = |child: &str| {
            if at.is_empty() { child.to_owned() } else { format!("{at}::{child}") }
        };
        let child = join(segment);
        if modules.contains_key(&child) {
            at = child;
            continue;
        }
        let exported = uses(modules.get(parent)?)
            .into_iter()
            .find(|path| path.last() == Some(segment) && modules.contains_key(&join(&path[0])));
        return exported.map(|path| join(&path[0])).or(Some(at).filter(|at| !at.is_empty()));
    }
    Some(at)
}

/// Returns which module uses which, according to their `use` statements.
fn arrows(modules: &Modules) -> BTreeSet<(String, String)> {
    let mut arrows = BTreeSet::new();
    for (from, code) in modules {
        let parent = from.rsplit_once("::").map(|(parent, _)| parent);
        for mut path in uses(code) {
            match path[0].as_str() {
                "crate" => drop(path.remove(0)),
                "super" => {
                    let parent = parent.into_iter().flat_map(|parent| parent.split("::"));
                    path.splice(..1, parent.map(str::to_owned));
                }
                _ => continue,
            }
            arrows.extend(
                definer(modules, &path).filter(|to| to != from).map(|to| (from.clone(), to)),
            );
        }
    }
    arrows
}

fn layer(module: &str) -> usize {
    let root = module.split("::").next().unwrap_or_default();
    let layer = LAYERS.iter().position(|layer| layer.contains(&root));
    layer.unwrap_or_else(|| panic!("{root} has no layer; give it one in LAYERS"))
}

/// Why: 26 files that used each other in a circle could only be understood together.
#[test]
fn folders_use_only_those_below_them() {
    let modules = modules();
    for name in modules.keys().filter(|name| *name != "lib") {
        layer(name);
    }
    let arrows = arrows(&modules);
    assert!(arrows.len() > 200, "only {} arrows were found", arrows.len());
    for (from, to) in &arrows {
        let root = |path: &str| path.split("::").next().unwrap_or_default().to_owned();
        let is_fine = root(from) == root(to) || layer(from) < layer(to);
        assert!(is_fine, "{from} uses {to}, which is not below it: move what both need down");
    }
}

/// A path within the code can go up just like an import.
#[test]
fn paths_within_the_code_go_down_too() {
    for (from, code) in modules().iter().filter(|(from, _)| *from != "lib") {
        for path in code.split("crate::").skip(1) {
            let root: String =
                path.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            if root.is_empty() {
                continue; // a name that `lib.rs` exports; the test above resolves it
            }
            let is_own = from.split("::").next() == Some(root.as_str());
            assert!(
                is_own || layer(from) < layer(&root),
                "{from} names {root}, which is not below it"
            );
        }
    }
}

#[test]
fn no_two_files_use_each_other() {
    let mut left = arrows(&modules());
    // Remove leaves until only circles and the arrows to them remain.
    loop {
        let sources: BTreeSet<String> = left.iter().map(|(from, _)| from.clone()).collect();
        let before = left.len();
        left.retain(|(_, to)| sources.contains(to));
        if left.len() == before {
            break;
        }
    }
    let circle: Vec<String> = iter::once("circles:".to_owned())
        .chain(left.iter().map(|(from, to)| format!("{from} → {to}")))
        .collect();
    assert!(left.is_empty(), "{}", circle.join("\n"));
}
