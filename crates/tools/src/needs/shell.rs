//! The needs of a shell command: one resource for each command in it.

use super::script::{self, MAX_BYTES, Redirected, Script, Simple};
use super::word::Word;
use super::wrapped::{Inner, base, inner, runs_arguments};
use super::{Gathered, guises, saved};

/// The most commands around a command.
const MAX_WRAPPED: usize = 8;
/// The most resources, with their guises. A script with more is not taken apart.
const MAX_RESOURCES: usize = 2_048;
/// Programs whose arguments are paths, and whether each path is a directory.
const OF_PATHS: [(&str, bool); 33] = [
    ("cat", false),
    ("cd", true),
    ("chgrp", false),
    ("chmod", false),
    ("chown", false),
    ("cp", false),
    ("diff", false),
    ("du", true),
    ("file", false),
    ("find", true),
    ("head", false),
    ("install", false),
    ("less", false),
    ("ln", false),
    ("ls", true),
    ("mkdir", true),
    ("more", false),
    ("mv", false),
    ("pushd", true),
    ("realpath", false),
    ("rm", false),
    ("rmdir", true),
    ("rsync", false),
    ("shred", false),
    ("source", false),
    (".", false),
    ("stat", false),
    ("tac", false),
    ("tail", false),
    ("tee", false),
    ("touch", false),
    ("tree", true),
    ("unlink", false),
];
/// Files that hold nothing of anybody.
const DEVICES: [&str; 8] = [
    "/dev/null",
    "/dev/stdin",
    "/dev/stdout",
    "/dev/stderr",
    "/dev/tty",
    "/dev/zero",
    "/dev/random",
    "/dev/urandom",
];

/// Adds what a command needs. `directory` is the session's.
pub(super) fn add(command: &str, directory: &str, needs: &mut Gathered) {
    let mut own = Gathered::default();
    let mut taking = Taking {
        directory,
        needs: &mut own,
        left: MAX_RESOURCES,
        is_saved: true,
        is_opaque: false,
    };
    match taking.script(command, 0) {
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
    needs: &'a mut Gathered,
    left: usize,
    /// Every resource has a pattern that may be saved.
    is_saved: bool,
    /// Something in it cannot be told.
    is_opaque: bool,
}

impl Taking<'_> {
    fn script(&mut self, text: &str, depth: usize) -> Option<()> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let Script { commands, redirected } = script::read(text)?;
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
        self.paths(&command.words);
        self.is_opaque |= command.words[0].exact().is_none() || command.words[0].is_filled_in();
        self.is_opaque |= command.has_more && runs_arguments(&command.words[0]);
        match inner(command) {
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

    /// Notes paths among the arguments that leave the directory.
    fn paths(&mut self, words: &[Word]) {
        let Some(name) = words.first().and_then(Word::exact) else { return };
        let Some((_, is_directory)) = OF_PATHS.iter().find(|(known, _)| *known == base(name))
        else {
            return;
        };
        for word in &words[1..] {
            let Some(path) = word.text.as_deref().filter(|path| !path.starts_with('-')) else {
                continue;
            };
            if !is_device(path) {
                self.needs.outside(path, self.directory, *is_directory);
            }
        }
    }

    fn redirected(&mut self, redirected: &Redirected) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        let Redirected { file, is_written } = redirected;
        let action = if *is_written { "edit" } else { "read" };
        match file.text.as_deref() {
            Some(path) if is_device(path) => {}
            Some(path) => self.needs.path(action, path, self.directory),
            None => self.needs.whole(action, &file.raw),
        }
        Some(())
    }
}

fn is_device(path: &str) -> bool {
    DEVICES.contains(&path) || path.starts_with("/dev/fd/")
}
