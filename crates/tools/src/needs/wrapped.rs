//! Finds the command in the arguments of another: `sudo CMD`, `timeout 5 CMD`, `bash -c SCRIPT`.

use super::script::{Input, Simple};
use super::word::Word;

/// The commands that a command runs besides itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inner {
    /// Nothing.
    Nothing,
    /// Each of these, as words.
    Words(Vec<Vec<Word>>),
    /// A script.
    Script(String),
    /// Something, but it cannot be told what.
    Unclear,
}

/// A program that runs its arguments.
struct Wrapper {
    name: &'static str,
    /// Options without a value, by their letters.
    flags: &'static str,
    /// Options with a value, by their letters.
    valued: &'static str,
    /// Long options without a value.
    long_flags: &'static [&'static str],
    /// Arguments before the command.
    own: usize,
}

const fn wrapper(
    name: &'static str,
    flags: &'static str,
    valued: &'static str,
    long_flags: &'static [&'static str],
    own: usize,
) -> Wrapper {
    Wrapper { name, flags, valued, long_flags, own }
}

const WRAPPERS: [Wrapper; 19] = [
    wrapper("sudo", "AbEeHknPS", "CDghpRrTtUu", &["--preserve-env", "--non-interactive"], 0),
    wrapper("doas", "Lns", "Cu", &[], 0),
    wrapper("env", "i0v", "uC", &["--ignore-environment", "--null", "--debug"], 0),
    wrapper("timeout", "v", "ks", &["--preserve-status", "--foreground", "--verbose"], 1),
    wrapper("nice", "", "n", &[], 0),
    wrapper("ionice", "t", "cn", &[], 0),
    wrapper("nohup", "", "", &[], 0),
    wrapper("setsid", "cfw", "", &["--wait", "--fork", "--ctty"], 0),
    wrapper("stdbuf", "", "ioe", &[], 0),
    wrapper("time", "apvq", "fo", &["--portability", "--verbose", "--append", "--quiet"], 0),
    wrapper("command", "p", "", &[], 0),
    wrapper("builtin", "", "", &[], 0),
    wrapper("exec", "cl", "a", &[], 0),
    wrapper("chroot", "", "", &[], 1),
    wrapper(
        "xargs",
        "0prtx",
        "adEIILnPs",
        &["--null", "--no-run-if-empty", "--verbose", "--exit"],
        0,
    ),
    wrapper(
        "unshare",
        "muinpUCTrcf",
        "SG",
        &["--net", "--user", "--mount", "--pid", "--fork", "--map-root-user"],
        0,
    ),
    wrapper("busybox", "", "", &[], 0),
    wrapper("chronic", "ev", "", &[], 0),
    wrapper("unbuffer", "p", "", &[], 0),
];

/// Programs that run a command of their arguments in a way that is not taken apart.
const UNCLEAR: [&str; 12] = [
    "parallel",
    "watch",
    "flock",
    "script",
    "su",
    "runuser",
    "nsenter",
    "strace",
    "ltrace",
    "expect",
    "entr",
    "systemd-run",
];
const SHELLS: [&str; 7] = ["bash", "sh", "dash", "zsh", "ksh", "ash", "rbash"];

/// Returns the name of a program without its folder.
pub(super) fn base(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Returns whether a program runs its arguments, as far as that is known.
pub(super) fn runs_arguments(program: &Word) -> bool {
    program.exact().map(base).is_some_and(|name| {
        SHELLS.contains(&name)
            || UNCLEAR.contains(&name)
            || matches!(name, "eval" | "trap" | "find" | "fd" | "fdfind")
            || WRAPPERS.iter().any(|wrapper| wrapper.name == name)
    })
}

/// Returns what a command runs besides itself.
pub(super) fn inner(command: &Simple) -> Inner {
    let Some(name) = command.words.first().and_then(Word::exact) else {
        // It may be nothing, and then the next word is the program.
        return Inner::Words(vec![command.words.get(1..).unwrap_or_default().to_vec()]);
    };
    let (name, arguments) = (base(name), &command.words[1..]);
    if SHELLS.contains(&name) {
        return shell(arguments, command.input.as_ref());
    }
    if UNCLEAR.contains(&name) {
        return Inner::Unclear;
    }
    match name {
        "eval" => eval(arguments),
        "trap" => trap(arguments),
        "find" | "fd" | "fdfind" => find(arguments),
        // They only look the name up.
        "command"
            if arguments.first().is_some_and(|word| matches!(word.exact(), Some("-v" | "-V"))) =>
        {
            Inner::Nothing
        }
        _ => match WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
            Some(wrapper) => after_options(wrapper, arguments),
            None => Inner::Nothing,
        },
    }
}

fn after_options(wrapper: &Wrapper, arguments: &[Word]) -> Inner {
    let (mut at, mut own) = (0, wrapper.own);
    while let Some(word) = arguments.get(at) {
        let Some(text) = word.exact() else {
            // It may be no word, or several. The command is judged by how it looks, and what stands before it has to be sure.
            if own > 0 {
                return Inner::Unclear;
            }
            break;
        };
        if text == "--" {
            at += 1;
            if arguments.iter().skip(at).take(own).any(|word| word.exact().is_none()) {
                return Inner::Unclear;
            }
            at += own;
            break;
        }
        if let Some(long) = text.strip_prefix("--") {
            if !long.contains('=') && !wrapper.long_flags.contains(&text) {
                return Inner::Unclear;
            }
            at += 1;
            continue;
        }
        if let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            match letters.find(|c| wrapper.valued.contains(c)) {
                _ if letters.starts_with(|c: char| c.is_ascii_digit())
                    && wrapper.name == "nice" =>
                {
                    at += 1;
                }
                Some(place) if letters[..place].chars().all(|c| wrapper.flags.contains(c)) => {
                    if place + 1 == letters.len() {
                        at += 1;
                        if arguments.get(at).is_some_and(|value| value.exact().is_none()) {
                            return Inner::Unclear;
                        }
                    }
                    at += 1;
                }
                None if letters.chars().all(|c| wrapper.flags.contains(c)) => at += 1,
                Some(_) | None => return Inner::Unclear,
            }
            continue;
        }
        if matches!(wrapper.name, "env" | "sudo" | "doas") && text.contains('=') {
            at += 1;
        } else if own > 0 {
            (at, own) = (at + 1, own - 1);
        } else {
            break;
        }
    }
    match arguments.get(at..) {
        None | Some([]) => Inner::Nothing,
        Some(words) => Inner::Words(vec![words.to_vec()]),
    }
}

fn shell(arguments: &[Word], input: Option<&Input>) -> Inner {
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        let Some(text) = word.exact() else { return Inner::Unclear };
        at += 1;
        let is_long = matches!(text, "--login" | "--norc" | "--noprofile" | "--posix");
        let letters = text.strip_prefix(['-', '+']).filter(|letters| !letters.is_empty());
        match letters {
            None => return Inner::Nothing, // a script in a file
            Some(_) if is_long => {}
            Some(letters) if letters.chars().all(|c| "abefhiklmnprtuvxBCEHPTco".contains(c)) => {
                if letters.contains('o') {
                    at += 1;
                }
                if letters.contains('c') {
                    let script = arguments.get(at).and_then(Word::exact);
                    return script.map_or(Inner::Unclear, |text| Inner::Script(text.to_owned()));
                }
            }
            Some(_) => return Inner::Unclear,
        }
    }
    match input {
        Some(Input::Known(text)) => Inner::Script(text.clone()),
        Some(Input::Expanded) | None => Inner::Unclear,
    }
}

fn eval(arguments: &[Word]) -> Inner {
    let texts: Option<Vec<&str>> = arguments.iter().map(Word::exact).collect();
    texts.map_or(Inner::Unclear, |texts| Inner::Script(texts.join(" ")))
}

fn trap(arguments: &[Word]) -> Inner {
    match arguments.first().map(Word::exact) {
        None | Some(Some("" | "-" | "-l" | "-p")) => Inner::Nothing,
        Some(Some(script)) if !script.starts_with('-') => Inner::Script(script.to_owned()),
        Some(_) => Inner::Unclear,
    }
}

fn find(arguments: &[Word]) -> Inner {
    let mut found = Vec::new();
    let mut rest = arguments;
    let starts = ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"];
    let is_start = |word: &Word| word.exact().is_some_and(|text| starts.contains(&text));
    while let Some(start) = rest.iter().position(is_start) {
        let words = &rest[start + 1..];
        let is_end = |word: &Word| matches!(word.exact(), Some(";" | "+"));
        let end = words.iter().position(is_end).unwrap_or(words.len());
        found.push(words[..end].to_vec());
        rest = &words[end..];
    }
    if found.is_empty() { Inner::Nothing } else { Inner::Words(found) }
}
