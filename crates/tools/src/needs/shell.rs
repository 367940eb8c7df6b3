//! The needs of a shell command: one resource for each command in it.

use std::collections::BTreeSet;

use super::places::{Place, Variables, is_device, list_places};
use super::script::{self, MAX_BYTES, Redirected, Script, Simple};
use super::word::{Piece, Word};
use super::wrapped::{Inner, base, inner, runs_arguments};
use super::{Gathered, guises, paths, saved};
use crate::arguments::quote_word;

/// The most commands around a command.
const MAX_WRAPPED: usize = 8;
/// The most directories in which a script may be. Where one with more is, is not known.
const MAX_STOPS: usize = 16;
/// Options of programs that start a command in another directory: their letters, and how others of them begin.
const MOVING: [(&str, &str, &[&str]); 6] = [
    ("chroot", "", &[""]),
    ("env", "C", &["--chdir"]),
    ("find", "", &["-execdir", "-okdir"]),
    ("su", "", &[""]),
    ("sudo", "DRi", &["--chdir", "--chroot", "--login"]),
    ("unshare", "Rw", &["--root", "--wd"]),
];
/// The most resources, with their guises. A script with more is not taken apart.
const MAX_RESOURCES: usize = 2_048;
/// Adds what a command needs. `directory` is the session's, and `workdir` where it starts if that is another one.
pub(super) fn add(command: &str, directory: &str, workdir: Option<&str>, needs: &mut Gathered) {
    let mut own = Gathered::default();
    let mut taking = Taking {
        directory,
        workdir,
        needs: &mut own,
        variables: Variables::default(),
        left: MAX_RESOURCES,
        is_saved: true,
        is_opaque: false,
        stops: Some(vec![workdir.unwrap_or(directory).to_owned()]),
        is_repeated: false,
        places: Vec::new(),
        redirected: Vec::new(),
    };
    let taken = taking.add_entry().and_then(|()| taking.script(command, 0));
    match taken.and_then(|()| taking.finish_files()) {
        Some(()) => {
            let Taking { is_saved, is_opaque, .. } = taking;
            own.finish_commands(is_saved && !is_opaque, is_opaque);
            needs.needs.extend(own.needs);
        }
        None => needs.whole("shell", command),
    }
}

struct Taking<'a> {
    directory: &'a str,
    workdir: Option<&'a str>,
    needs: &'a mut Gathered,
    variables: Variables,
    left: usize,
    /// Every resource has a pattern that may be saved.
    is_saved: bool,
    /// Something in it cannot be told.
    is_opaque: bool,
    /// Each directory in which it may be: where it starts, and where `cd` leads. `None` if that is not known.
    stops: Option<Vec<String>>,
    /// What it has taken apart may run again, or later.
    is_repeated: bool,
    /// The places and files that it names, which are judged once all of its steps are known.
    places: Vec<Place>,
    redirected: Vec<Redirected>,
}

impl Taking<'_> {
    /// Adds the step into the directory where the command starts, so that people who are asked see it.
    fn add_entry(&mut self) -> Option<()> {
        let Some(workdir) = self.workdir else { return Some(()) };
        let place = paths::rebase_path(".", workdir, self.directory);
        self.resource(format!("cd {}", quote_word(&place)), Some("cd *".to_owned()))
    }

    /// Returns where the command starts.
    fn starting_place(&self) -> &str {
        self.workdir.unwrap_or(self.directory)
    }

    /// Returns a path of a command that runs in `place`, as it is from the session's directory.
    fn rebase_path(&self, path: &str, place: &str) -> String {
        if place == self.directory {
            path.to_owned()
        } else {
            paths::rebase_path(path, place, self.directory)
        }
    }

    fn script(&mut self, text: &str, depth: usize) -> Option<()> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let Script { commands, redirected, variables, is_repeated } = script::read(text)?;
        self.is_repeated |= is_repeated;
        let start = self.workdir.unwrap_or(self.directory);
        self.variables.extend(&variables, start);
        self.redirected.extend(redirected);
        commands.iter().try_for_each(|command| self.command(command, depth))
    }

    /// Adds the places and files that were noted.
    fn finish_files(&mut self) -> Option<()> {
        self.finish_places();
        let redirected = std::mem::take(&mut self.redirected);
        redirected.iter().try_for_each(|file| self.redirected(file))
    }

    fn command(&mut self, command: &Simple, depth: usize) -> Option<()> {
        if depth > MAX_WRAPPED {
            return None;
        }
        for (name, whole) in &command.assigned {
            // A variable of the script alone changes no other program.
            let is_for_programs =
                !command.words.is_empty() || !name.chars().any(|c| c.is_ascii_lowercase());
            if is_for_programs {
                self.resource(whole.clone(), Some(format!("{name}=*")))?;
            }
        }
        if command.words.is_empty() {
            return Some(());
        }
        let shown = command.words.iter().map(Word::shown).collect::<Vec<_>>().join(" ");
        let pattern = saved::pattern(&command.words, &shown);
        let guises = guises::list_guises(command, &shown);
        self.left = self.left.checked_sub(guises.len())?;
        self.resource(shown, pattern)?;
        self.needs.add_guises("shell", &guises);
        self.is_opaque |= command.words[0].exact().is_none() || command.words[0].is_filled_in();
        self.is_opaque |= command.has_more && runs_arguments(&command.words[0]);
        let inner = inner(command);
        self.note_places(command, &inner);
        self.note_step(command, &inner);
        match inner {
            Inner::Nothing => Some(()),
            Inner::Unclear => {
                self.is_opaque = true;
                let rest = command.words[1..].iter().map(Word::shown).collect::<Vec<_>>().join(" ");
                if rest.is_empty() { Some(()) } else { self.resource(rest, None) }
            }
            Inner::Script(text) => {
                self.is_opaque |= command.words.iter().any(Word::is_filled_in);
                self.is_saved = false;
                self.script(&text, depth + 1)
            }
            Inner::Words(all) => {
                let has_more = command.has_more || guises::adds_words(command);
                all.into_iter().try_for_each(|words| {
                    let words = guises::filled_in(command, words);
                    let (assigned, input) = (Vec::new(), command.input.clone());
                    self.command(&Simple { assigned, words, input, has_more }, depth + 1)
                })
            }
        }
    }

    fn resource(&mut self, text: String, pattern: Option<String>) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        self.is_saved &= pattern.is_some();
        self.needs.command(text, pattern);
        Some(())
    }

    /// Notes paths among the arguments, but for those of the command that it runs.
    fn note_places(&mut self, command: &Simple, inner: &Inner) {
        let own = count_own(command, inner);
        let has_more = command.has_more && matches!(inner, Inner::Nothing);
        let places =
            list_places(&command.words[..own], has_more, &self.variables, self.starting_place());
        self.places.extend(places);
    }

    /// Adds the places that leave the directory. Rules that deny or ask see them from behind each `cd` too.
    fn finish_places(&mut self) {
        let (start, mut guises) = (self.starting_place().to_owned(), BTreeSet::new());
        let stops = self.stops.clone().unwrap_or_default();
        for place in std::mem::take(&mut self.places) {
            match place {
                Place::Known { path, is_directory } => {
                    let others = stops.iter().filter(|stop| **stop != start);
                    let others = others.map(|stop| self.rebase_path(&path, stop));
                    guises
                        .extend(others.filter_map(|path| {
                            paths::outside(&path, self.directory, is_directory)
                        }));
                    let path = self.rebase_path(&path, &start);
                    self.needs.outside(&path, self.directory, is_directory);
                }
                Place::Unknown(raw) => self.needs.whole("external_directory", &raw),
            }
        }
        let guises: Vec<String> = guises.into_iter().collect();
        self.needs.add_guises("external_directory", &guises);
    }

    /// Notes where the script may be behind a command.
    fn note_step(&mut self, command: &Simple, inner: &Inner) {
        let Some(names) = self.variables.list_texts(&command.words[0], self.starting_place())
        else {
            self.stops = None; // it may be `cd`
            return;
        };
        for name in names.iter().map(|name| base(name)) {
            match name {
                "cd" | "pushd" => self.enter_folder(name, command),
                "eval" if *inner == Inner::Unclear => self.stops = None,
                "trap" => self.is_repeated = true,
                _ if moves(name, command, inner) => self.stops = None,
                _ => {}
            }
        }
    }

    /// Notes where `cd` or `pushd` leads, from each place where the script may be. That of `popd` is one of them.
    fn enter_folder(&mut self, name: &str, command: &Simple) {
        let arguments = &command.words[1..];
        let is = |word: &Word, text: &str| word.exact() == Some(text);
        let is_option = |word: &Word| word.exact().is_some_and(|text| text.starts_with(['-', '+']));
        let target = match arguments.iter().position(|word| is(word, "--")) {
            Some(at) => arguments.get(at + 1),
            None => arguments.iter().find(|word| !is_option(word)),
        };
        let targets = match target {
            Some(word) => {
                let texts = self.variables.list_texts(word, self.starting_place());
                let is_plain =
                    |text: &String| word.is_exact || !text.contains(['*', '?', '[', '{']);
                texts.filter(|texts| texts.iter().all(is_plain) && !names_place(word))
            }
            None if name == "cd" && !arguments.iter().any(|word| is(word, "-")) => {
                Some(vec!["~".to_owned()])
            }
            None => return, // back to where it was
        };
        let is_known = |target: &String| {
            let is_home = target == "~" || target.starts_with("~/");
            let is_sure = !self.is_repeated && !self.variables.has("CDPATH");
            target.starts_with('/') || is_home || (is_sure && !target.starts_with('~'))
        };
        let targets = targets.filter(|targets| targets.iter().all(is_known));
        let Some(targets) = targets else {
            self.stops = None;
            return;
        };
        let Some(stops) = &mut self.stops else { return };
        for stop in stops.clone() {
            for target in &targets {
                let place = paths::enter_folder(target, &stop);
                if !stops.contains(&place) {
                    stops.push(place);
                }
            }
        }
        if stops.len() > MAX_STOPS {
            self.stops = None;
        }
    }

    fn redirected(&mut self, redirected: &Redirected) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        let Redirected { file, is_written } = redirected;
        let action = if *is_written { "edit" } else { "read" };
        let start = self.starting_place().to_owned();
        let stops = self.stops.clone().unwrap_or_else(|| vec![start]);
        let is_relative = |path: &String| !path.starts_with(['/', '~']);
        for stop in &stops {
            let Some(paths) = self.variables.list_texts(file, stop) else {
                self.needs.whole(action, &file.raw);
                self.needs.whole("external_directory", &file.raw);
                return Some(());
            };
            let depends = names_place(file) || paths.iter().any(is_relative);
            for path in paths.iter().filter(|path| !is_device(path)) {
                let path = self.rebase_path(path, stop);
                self.needs.path(action, &path, self.directory);
            }
            if self.stops.is_none() && depends {
                self.needs.whole(action, &file.raw);
                self.needs.whole("external_directory", &file.raw);
            }
        }
        Some(())
    }
}

/// Returns whether a word has the place in it where the script is.
fn names_place(word: &Word) -> bool {
    word.pieces.iter().any(|piece| matches!(piece, Piece::Variable(name) if name == "PWD"))
}

/// Returns whether a program starts a command in another directory.
fn moves(name: &str, command: &Simple, inner: &Inner) -> bool {
    let Some((_, letters, starts)) = MOVING.iter().find(|(mover, ..)| *mover == name) else {
        return false;
    };
    // A command in the middle of the others is that of `find`.
    let own = if name == "find" { command.words.len() } else { count_own(command, inner) };
    command.words.iter().take(own).skip(1).any(|word| {
        let text = word.text.as_deref().unwrap_or_default();
        let short = text.strip_prefix('-').filter(|short| !short.starts_with('-'));
        short.is_some_and(|short| short.contains(|c| letters.contains(c)))
            || starts.iter().any(|start| text.starts_with(start))
    })
}

/// Returns how many words of a command are its own, and not those of a command that it runs.
fn count_own(command: &Simple, inner: &Inner) -> usize {
    match inner {
        Inner::Words(all) => {
            let theirs: usize = all.iter().map(Vec::len).sum();
            command.words.len().saturating_sub(theirs)
        }
        Inner::Nothing | Inner::Unclear | Inner::Script(_) => command.words.len(),
    }
}
