//! The texts that a command may have besides the one that it was written with. Rules that deny are compared with them too.
//!
//! ```text
//! /usr/bin/git push        git push                  the program without its folder
//! git -C x push            git push                  without the options before the subcommand
//! kubectl -n x delete      kubectl x delete … kubectl delete   an option may take the next word, or not
//! taskset -c 0 git push    -c 0 git push … git push  each word behind a program that may start it
//! git $x                   git ⟨any text⟩            what is known only when it runs
//! ```

use std::collections::BTreeSet;

use domain::UNKNOWN_TEXT;

use super::saved;
use super::script::Simple;
use super::word::Word;
use super::wrapped::{base, runs_arguments};

/// The most words of a command behind which a command is looked for.
const MAX_WORDS: usize = 64;
/// Programs that start no argument, and whose arguments are often the names of others.
const PLAIN: [&str; 62] = [
    "[", "alias", "awk", "basename", "cat", "cd", "chgrp", "chmod", "chown", "cmp", "cp", "curl",
    "cut", "date", "declare", "df", "diff", "dirname", "du", "echo", "egrep", "export", "false",
    "fgrep", "file", "grep", "hash", "head", "help", "info", "jq", "kill", "less", "ln", "local",
    "ls", "man", "mkdir", "mv", "pgrep", "pkill", "printf", "pwd", "read", "readlink", "realpath",
    "rg", "rm", "sed", "set", "sort", "stat", "tail", "tee", "test", "touch", "true", "type",
    "unset", "wc", "whereis", "which",
];
/// Programs that start their arguments, and whose options are not known here.
const STARTERS: [&str; 16] = [
    "bwrap",
    "cgexec",
    "chrt",
    "firejail",
    "linux32",
    "linux64",
    "numactl",
    "pkexec",
    "prlimit",
    "proot",
    "schedtool",
    "setarch",
    "setpriv",
    "softlimit",
    "taskset",
    "torsocks",
];
/// Options of git before its subcommand that take the next word.
const OF_GIT: [&str; 7] =
    ["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"];

/// Returns the other texts of a command. `shown` is its own.
pub(super) fn list_guises(command: &Simple, shown: &str) -> Vec<String> {
    let words = &command.words;
    let mut texts: Vec<String> = words.iter().map(Word::guise).collect();
    if command.has_more {
        texts.push(UNKNOWN_TEXT.to_string());
    }
    let Some(program) = words.first().and_then(Word::exact).map(base) else {
        // Whatever it is, it counts as something that nobody can read.
        return Vec::new();
    };
    texts[0] = program.to_owned();
    let mut found = Vec::new();
    let mut add = |texts: &[String]| {
        let text = texts.join(" ");
        if text != shown && !found.contains(&text) {
            found.push(text);
        }
    };
    add(&texts);
    let arity = saved::find_arity(program);
    let mut are_known = true;
    for first in list_word_places(program, &texts, 1, &mut are_known) {
        let mut short = vec![texts[0].clone()];
        short.extend_from_slice(&texts[first..]);
        add(&short);
        // `gh pr -R x merge`: the second word of a subcommand may stand behind options too.
        let longer = saved::find_arity(&format!("{program} {}", texts[first]));
        if longer.or(arity).is_none_or(|arity| arity < 3) {
            continue;
        }
        for second in list_word_places(program, &texts, first + 1, &mut are_known) {
            let mut short = vec![texts[0].clone(), texts[first].clone()];
            short.extend_from_slice(&texts[second..]);
            add(&short);
        }
    }
    if !are_known {
        add(&[program.to_owned(), UNKNOWN_TEXT.to_string()]);
    }
    if PLAIN.contains(&program) || runs_arguments(&words[0]) {
        return found;
    }
    let is_starter = STARTERS.contains(&program);
    for at in arity.unwrap_or(1)..words.len().min(MAX_WORDS) {
        let Some(name) = words[at].exact().filter(|_| !words[at].is_filled_in()) else {
            if is_starter {
                add(&texts[at..]);
            }
            continue;
        };
        if !name.contains(char::is_whitespace) {
            let mut rest = texts[at..].to_vec();
            base(name).clone_into(&mut rest[0]);
            add(&rest);
        } else if arity.is_none() {
            for part in name.split([';', '|', '&', '\n', '(', ')']) {
                add(&[part.split_whitespace().collect::<Vec<_>>().join(" ")]);
            }
        }
    }
    found.retain(|text| !text.is_empty());
    found
}

/// Returns where the first word behind options may stand, `from` a word on. Of git it is known which of them take the next word;
/// those of another program with subcommands may take it or not. `are_known` ends if there are too many of them.
fn list_word_places(
    program: &str,
    texts: &[String],
    from: usize,
    are_known: &mut bool,
) -> BTreeSet<usize> {
    let is_of_git = program == "git";
    let may_take_next = !is_of_git && saved::find_arity(program).is_some();
    let (mut places, mut open) = (BTreeSet::new(), BTreeSet::from([from]));
    while let Some(at) = open.pop_first() {
        let Some(text) = texts.get(at) else { continue };
        if !text.starts_with('-') {
            places.insert(at);
            continue;
        }
        if may_take_next && at >= from + MAX_WORDS {
            *are_known = false;
            break;
        }
        let takes_next = is_of_git && OF_GIT.contains(&text.as_str());
        let may_take = takes_next || (may_take_next && text != "--" && !text.contains('='));
        open.extend((!takes_next).then_some(at + 1));
        open.extend(may_take.then_some(at + 2));
    }
    places
}

/// Returns whether a command adds words that it reads to the command in its arguments.
pub(super) fn adds_words(command: &Simple) -> bool {
    command.words.first().and_then(Word::exact).map(base) == Some("xargs")
}

/// Returns the words of the command within another, with those marked that the other one fills in.
pub(super) fn filled_in(command: &Simple, words: Vec<Word>) -> Vec<Word> {
    let program = command.words.first().and_then(Word::exact).map(base);
    let place = match program {
        Some("xargs") => replaced(&command.words),
        Some("find" | "fd" | "fdfind") => "{}".to_owned(),
        Some(_) | None => return words,
    };
    let fill = |word: Word| {
        if !word.template.contains(&place) {
            return word;
        }
        // The text stays, because people are asked about it as it was written.
        let template = word.template.replace(&place, &UNKNOWN_TEXT.to_string());
        Word { template, ..word }
    };
    words.into_iter().map(fill).collect()
}

/// Returns the text that `xargs` replaces.
fn replaced(words: &[Word]) -> String {
    let mut texts = words.iter().filter_map(Word::exact);
    while let Some(text) = texts.next() {
        let value = match text {
            "-I" => texts.next().map(str::to_owned),
            _ => text.strip_prefix("-I").or(text.strip_prefix("--replace=")).map(str::to_owned),
        };
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            return value;
        }
    }
    "{}".to_owned()
}
