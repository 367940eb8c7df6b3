//! The needs of a call: the actions and the texts that rules' patterns are compared with.
//!
//! ```text
//! tool, arguments, directory ─▶ Need { action, resources, save } …
//!        shell: parser ─▶ one resource for each command in it      a path: as given, from the directory, in full
//!        not understood: the whole text, never saved               outside the directory: `external_directory` besides
//! ```
//!
//! Lexical and pure: looks at no file, and the same bytes have the same needs on every worker.
//!
//! Invariant: the needs of `a ; b` contain those of `a` and those of `b`.
//!
//! Absent: the rules, and the walls. A program does what it does, whatever its command looks like; the sandbox bounds it.

mod guises;
mod pages;
mod paths;
mod places;
mod saved;
mod script;
mod shell;
mod word;
mod wrapped;

use domain::Need;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::apply_patch;
use crate::arguments;
use crate::outputs::is_managed;

/// The stack of the thread that parses, in bytes. The parser's recursion is bounded, and larger than other threads' stacks.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// Returns the needs of a call. A call whose arguments its tool cannot read, or whose tool there is not, has none: it fails
/// before it does anything. `directory` is the session's, absolute.
#[must_use]
pub fn needs(tool: &str, arguments: &str, directory: &str) -> Vec<Need> {
    let mut needs = Gathered::default();
    match tool {
        "shell" => {
            if let Some(OfShell { command, workdir }) = read(tool, arguments) {
                let workdir = find_workdir(workdir.as_deref(), directory);
                of_shell(&command, directory, workdir.as_deref(), &mut needs);
                if let Some(place) = &workdir {
                    needs.outside(place, directory, true);
                }
            }
        }
        "read" => {
            if let Some(OfFile { path }) = read(tool, arguments) {
                needs.path("read", &path, directory);
            }
        }
        "write" | "edit" => {
            if let Some(OfFile { path }) = read(tool, arguments) {
                needs.path("edit", &path, directory);
            }
        }
        "apply_patch" => {
            let changes = read(tool, arguments)
                .and_then(|apply_patch::Arguments { patch }| apply_patch::parse(&patch).ok());
            for path in changes.iter().flatten().flat_map(apply_patch::FileChange::paths) {
                needs.path("edit", path, directory);
            }
        }
        "glob" | "grep" => {
            if let Some(OfSearch { pattern, path }) = read(tool, arguments) {
                let action = if tool == "glob" { "glob" } else { "grep" };
                needs.thing(action, vec![pattern], Some("*".to_owned()));
                if let Some(path) = path.filter(|path| !path.is_empty()) {
                    if tool == "grep" {
                        // It shows what is in it, as `read` does.
                        needs.named("read", &path, directory);
                    }
                    needs.outside(&path, directory, true);
                }
            }
        }
        "todowrite" | "todoread" => {
            let action = if tool == "todowrite" { "todowrite" } else { "todoread" };
            needs.thing(action, vec!["*".to_owned()], Some("*".to_owned()));
        }
        "webfetch" => {
            if let Some(OfPage { url }) = read(tool, arguments) {
                let save = saved_address(url.trim());
                let (names, guises) = pages::list_forms(url.trim());
                needs.thing_with("webfetch", names, guises, save);
            }
        }
        "skill" => {
            if let Some(OfSkill { name }) = read(tool, arguments) {
                let save = (!name.contains(['*', '?'])).then(|| name.clone());
                needs.thing("skill", vec![name], save);
            }
        }
        _ => {}
    }
    needs.needs
}

fn read<T: DeserializeOwned>(tool: &str, arguments: &str) -> Option<T> {
    arguments::parse_text(tool, arguments).ok()
}

/// Returns where a command starts, in full, unless that is the session's directory. `given` is its argument `workdir`. The tool
/// asks here too, so that the command runs where its rules saw it.
pub(crate) fn find_workdir(given: Option<&str>, directory: &str) -> Option<String> {
    let given = given.filter(|given| !given.is_empty())?;
    Some(paths::full(given, directory)).filter(|place| *place != paths::full(directory, "/"))
}

/// Parses a command on a thread of its own, with enough stack. If the parser panics, the command was not taken apart.
fn of_shell(command: &str, directory: &str, workdir: Option<&str>, needs: &mut Gathered) {
    let parsed = std::thread::scope(|scope| {
        let parse = || {
            let mut found = Gathered::default();
            shell::add(command, directory, workdir, &mut found);
            found
        };
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        thread.spawn_scoped(scope, parse).ok()?.join().ok()
    });
    match parsed {
        Some(found) => needs.needs.extend(found.needs),
        None => needs.whole("shell", command),
    }
}

#[derive(Deserialize)]
struct OfShell {
    command: String,
    workdir: Option<String>,
}

#[derive(Deserialize)]
struct OfFile {
    #[serde(alias = "filePath")]
    path: String,
}

#[derive(Deserialize)]
struct OfSearch {
    pattern: String,
    #[serde(alias = "filePath")]
    path: Option<String>,
}

#[derive(Deserialize)]
struct OfPage {
    url: String,
}

/// Returns the pattern of all pages of an address's host.
fn saved_address(address: &str) -> Option<String> {
    let url = url::Url::parse(address).ok()?;
    let host = url.host_str().filter(|host| !host.contains(['*', '?']))?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{}://{host}{port}/*", url.scheme()))
}

#[derive(Deserialize)]
struct OfSkill {
    name: String,
}

/// Needs on their way: one for all commands, and one for each other thing.
#[derive(Debug, Default)]
struct Gathered {
    needs: Vec<Need>,
}

impl Gathered {
    /// Adds a command. Without a pattern, none of the commands may be saved.
    fn command(&mut self, text: String, save: Option<String>) {
        let need = match self.needs.iter_mut().position(|need| need.action == "shell") {
            Some(at) => &mut self.needs[at],
            None => {
                let (action, resources, save) = ("shell".to_owned(), Vec::new(), Vec::new());
                self.needs.insert(
                    0,
                    Need { action, resources, save, is_opaque: false, guises: Vec::new() },
                );
                &mut self.needs[0]
            }
        };
        need.resources.extend((!need.resources.contains(&text)).then_some(text));
        need.save.extend(save.filter(|pattern| !need.save.contains(pattern)));
    }

    /// Adds texts that the things of an action may have besides.
    fn add_guises(&mut self, action: &str, guises: &[String]) {
        for need in self.needs.iter_mut().filter(|need| need.action == action) {
            let new = guises.iter().filter(|guise| !need.guises.contains(guise));
            let new: Vec<String> = new.cloned().collect();
            need.guises.extend(new);
        }
    }

    /// Says whether leave for the commands may be saved, and whether something in them is not known.
    fn finish_commands(&mut self, is_saved: bool, is_opaque: bool) {
        for need in self.needs.iter_mut().filter(|need| need.action == "shell") {
            need.is_opaque = is_opaque;
            if !is_saved {
                need.save.clear();
            }
        }
    }

    /// Adds a thing by its names.
    fn thing(&mut self, action: &'static str, names: Vec<String>, save: Option<String>) {
        self.thing_with(action, names, Vec::new(), save);
    }

    /// Adds a thing by its names, with texts that only rules that deny or ask are about.
    fn thing_with(
        &mut self,
        action: &'static str,
        names: Vec<String>,
        guises: Vec<String>,
        save: Option<String>,
    ) {
        let mut resources: Vec<String> = Vec::with_capacity(names.len());
        for name in names {
            resources.extend((!resources.contains(&name)).then_some(name));
        }
        let save = save.into_iter().collect();
        let need = Need { action: action.to_owned(), resources, save, is_opaque: false, guises };
        self.needs.extend((!self.needs.contains(&need)).then_some(need));
    }

    /// Adds a text that was not taken apart.
    fn whole(&mut self, action: &'static str, text: &str) {
        let resources = vec![text.to_owned()];
        let action = action.to_owned();
        let (save, guises) = (Vec::new(), Vec::new());
        let need = Need { action, resources, save, is_opaque: true, guises };
        self.needs.extend((!self.needs.contains(&need)).then_some(need));
    }

    /// Adds a path, and the directory outside to which it leads.
    fn path(&mut self, action: &'static str, path: &str, directory: &str) {
        self.named(action, path, directory);
        self.outside(path, directory, false);
    }

    /// Adds a path by all its names.
    fn named(&mut self, action: &'static str, path: &str, directory: &str) {
        let names = paths::forms(path, directory);
        let short = names.get(1).cloned().unwrap_or_else(|| path.to_owned());
        let whole = paths::enter_folder(path, directory);
        let is_outside = paths::outside(&whole, directory, false).is_some();
        let mut guises = if is_outside { paths::list_home_spellings(&whole) } else { Vec::new() };
        guises.extend((!names.contains(&whole)).then_some(whole));
        self.thing_with(action, names, guises, paths::saved(action, &short));
    }

    fn outside(&mut self, path: &str, directory: &str, is_directory: bool) {
        if is_managed(&paths::full(path, directory)) {
            return;
        }
        if let Some(place) = paths::outside(path, directory, is_directory) {
            let whole = paths::enter_folder(path, directory);
            let whole = paths::outside(&whole, directory, is_directory);
            let mut guises: Vec<String> =
                whole.iter().flat_map(|whole| paths::list_home_spellings(whole)).collect();
            guises.extend(whole);
            guises.retain(|guise| *guise != place);
            self.thing_with("external_directory", vec![place.clone()], guises, Some(place));
        }
    }
}

#[cfg(test)]
mod tests;
