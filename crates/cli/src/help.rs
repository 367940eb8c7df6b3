//! The list of commands in groups, for the help of a command that has many.

use std::fmt::Write as _;

use clap::Command;

use crate::wrap::wrapped;

/// A heading, and the commands below it.
pub type Group = (&'static str, &'static [&'static str]);

/// The groups of `session`.
const OF_SESSION: &[Group] = &[
    ("Look", &["list", "show", "log", "diff", "usage", "children", "inbox"]),
    (
        "Go on",
        &["open", "pull", "resume", "wait", "fork", "revert", "unrevert", "compact", "context"],
    ),
    ("Keep in order", &["rename", "archive", "unarchive", "delete", "move", "cancel", "deliver"]),
];

/// The columns of a help that goes to no terminal, and the most that it takes.
const WIDTH: usize = 100;

/// Shows the commands of `command` in groups, and those of its `session` too.
#[must_use]
pub fn group_commands(command: Command, groups: &[Group]) -> Command {
    let width = terminal_size::terminal_size().map_or(WIDTH, |(width, _)| usize::from(width.0));
    show_groups(command, groups, width.min(WIDTH))
        .mut_subcommand("session", |session| show_groups(session, OF_SESSION, width.min(WIDTH)))
}

fn show_groups(command: Command, groups: &[Group], width: usize) -> Command {
    let list = list_commands(&command, groups, width);
    command
        .help_template(
            "{before-help}{about-with-newline}\n{usage-heading} {usage}{after-help}\n\n\x1b[1;4mOptions:\x1b[0m\n{options}",
        )
        .after_help(list)
}

/// Returns the commands of each group, with what they do in a sentence.
fn list_commands(command: &Command, groups: &[Group], width: usize) -> String {
    let longest = command.get_subcommands().map(|below| below.get_name().len()).max().unwrap_or(0);
    let mut text = String::new();
    for (heading, names) in groups {
        let gap = if text.is_empty() { "" } else { "\n" };
        writeln!(text, "{gap}\x1b[1;4m{heading}:\x1b[0m").expect("writing to a string cannot fail");
        for name in *names {
            let Some(below) = command.find_subcommand(name) else { continue };
            let about = below.get_about().map(ToString::to_string).unwrap_or_default();
            let line =
                wrapped(&format!("{name:<longest$}  {about}"), Some(width.saturating_sub(3)));
            for line in line.lines() {
                writeln!(text, "  {line}").expect("writing to a string cannot fail");
            }
        }
    }
    text.truncate(text.trim_end().len());
    text
}

/// Returns the commands that are in no group or in several, and the names in groups that are no commands.
#[must_use]
pub fn find_ungrouped(command: &Command, groups: &[Group]) -> Vec<String> {
    let named: Vec<&str> = groups.iter().flat_map(|(_, names)| *names).copied().collect();
    let times = |name: &str| named.iter().filter(|its| **its == name).count();
    let commands = command.get_subcommands().filter(|below| !below.is_hide_set());
    let wrong =
        commands.map(clap::Command::get_name).filter(|name| *name != "help" && times(name) != 1);
    let unknown = named.iter().copied().filter(|name| command.find_subcommand(name).is_none());
    wrong.chain(unknown).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use clap::Subcommand as _;

    use super::*;

    #[test]
    fn each_command_of_a_session_is_in_one_group() {
        let command = crate::Command::augment_subcommands(Command::new("opencode-cloud"));
        let session = command.find_subcommand("session").expect("there");
        assert_eq!(find_ungrouped(session, OF_SESSION), [] as [String; 0]);
        let text = list_commands(session, OF_SESSION, 60);
        assert!(text.contains("Look:") && text.contains("\n  list "), "{text}");
        assert!(text.lines().all(|line| crate::wrap::columns(line) <= 60), "{text}");
        let help = show_groups(session.clone(), OF_SESSION, 80).render_help().to_string();
        assert!(help.starts_with("See, continue, change and delete sessions"), "{help}");
        assert!(help.contains("Options:\n") && help.contains("--json"), "{help}");
        assert!(!help.contains("\n\n\n"), "{help}");
    }
}
