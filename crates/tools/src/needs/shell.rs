//! The needs of a shell command: one resource for each command in it.

use super::places::{Place, Variables, is_device, list_places};
use super::script::{self, MAX_BYTES, Redirected, Script, Simple};
use super::word::Word;
use super::wrapped::{Inner, inner, runs_arguments};
use super::{Gathered, guises, paths, saved};
use crate::arguments::quote_word;

/// The most commands around a command.
const MAX_WRAPPED: usize = 8;
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
    };
    match taking.add_entry().and_then(|()| taking.script(command, 0)) {
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

    /// Returns a path of the command as it is from the session's directory.
    fn rebase_path(&self, path: &str) -> String {
        match self.workdir {
            Some(workdir) => paths::rebase_path(path, workdir, self.directory),
            None => path.to_owned(),
        }
    }

    fn script(&mut self, text: &str, depth: usize) -> Option<()> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let Script { commands, redirected, variables } = script::read(text)?;
        let start = self.workdir.unwrap_or(self.directory);
        self.variables.extend(&variables, start);
        commands.iter().try_for_each(|command| self.command(command, depth))?;
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
        self.needs.add_guises(&guises);
        self.is_opaque |= command.words[0].exact().is_none() || command.words[0].is_filled_in();
        self.is_opaque |= command.has_more && runs_arguments(&command.words[0]);
        let inner = inner(command);
        self.places(command, &inner);
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

    /// Notes paths among the arguments that leave the directory, but for those of the command that it runs.
    fn places(&mut self, command: &Simple, inner: &Inner) {
        let own = match inner {
            Inner::Words(all) => {
                let theirs: usize = all.iter().map(Vec::len).sum();
                command.words.len().saturating_sub(theirs)
            }
            Inner::Nothing | Inner::Unclear | Inner::Script(_) => command.words.len(),
        };
        let has_more = command.has_more && matches!(inner, Inner::Nothing);
        let places =
            list_places(&command.words[..own], has_more, &self.variables, self.starting_place());
        for place in places {
            match place {
                Place::Known { path, is_directory } => {
                    let path = self.rebase_path(&path);
                    self.needs.outside(&path, self.directory, is_directory);
                }
                Place::Unknown(raw) => self.needs.whole("external_directory", &raw),
            }
        }
    }

    fn redirected(&mut self, redirected: &Redirected) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        let Redirected { file, is_written } = redirected;
        let action = if *is_written { "edit" } else { "read" };
        let Some(paths) = self.variables.list_texts(file, self.starting_place()) else {
            self.needs.whole(action, &file.raw);
            self.needs.whole("external_directory", &file.raw);
            return Some(());
        };
        for path in paths.iter().filter(|path| !is_device(path)) {
            let path = self.rebase_path(path);
            self.needs.path(action, &path, self.directory);
        }
        Some(())
    }
}
