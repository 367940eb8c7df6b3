//! The tool that a model means by a name which is not quite one of those that it was offered.

use serde_json::Value;

/// Names that models know from elsewhere, without case and signs, and our tools that do the same.
const OTHERS: [(&str, &str); 58] = [
    ("bash", "shell"),
    ("cmd", "shell"),
    ("command", "shell"),
    ("containerexec", "shell"),
    ("exec", "shell"),
    ("execcommand", "shell"),
    ("execute", "shell"),
    ("executebash", "shell"),
    ("executecommand", "shell"),
    ("localshell", "shell"),
    ("run", "shell"),
    ("runbash", "shell"),
    ("runcommand", "shell"),
    ("runinterminal", "shell"),
    ("runshellcommand", "shell"),
    ("runterminalcmd", "shell"),
    ("runterminalcommand", "shell"),
    ("sh", "shell"),
    ("shellcommand", "shell"),
    ("terminal", "shell"),
    ("cat", "read"),
    ("list", "read"),
    ("listdir", "read"),
    ("listdirectory", "read"),
    ("listfiles", "read"),
    ("ls", "read"),
    ("openfile", "read"),
    ("readfile", "read"),
    ("readfiles", "read"),
    ("view", "read"),
    ("viewfile", "read"),
    ("createfile", "write"),
    ("savefile", "write"),
    ("writefile", "write"),
    ("writetofile", "write"),
    ("editfile", "edit"),
    ("replace", "edit"),
    ("replaceinfile", "edit"),
    ("replacestringinfile", "edit"),
    ("searchreplace", "edit"),
    ("strreplace", "edit"),
    ("applydiff", "apply_patch"),
    ("patch", "apply_patch"),
    ("filesearch", "glob"),
    ("findfiles", "glob"),
    ("globfilesearch", "glob"),
    ("searchfiles", "glob"),
    ("find", "glob"),
    ("grepsearch", "grep"),
    ("rg", "grep"),
    ("ripgrep", "grep"),
    ("search", "grep"),
    ("searchfilecontent", "grep"),
    ("fetch", "webfetch"),
    ("fetchurl", "webfetch"),
    ("fetchwebpage", "webfetch"),
    ("loadskill", "skill"),
    ("useskill", "skill"),
];
/// Tools of others that do several things, which an argument chooses.
const EDITORS: [&str; 3] = ["strreplaceeditor", "strreplacebasededit", "texteditor"];

/// Returns which of the `known` tools a call means: the one of that name, or the only one that the name can mean without case,
/// white space, signs and a prefix, or by the names that other programs have for it. `arguments` are the call's.
#[must_use]
pub fn meant_tool<'k>(
    name: &str,
    arguments: &str,
    known: &(impl Iterator<Item = &'k str> + Clone),
) -> Option<&'k str> {
    if let Some(tool) = known.clone().find(|tool| *tool == name) {
        return Some(tool);
    }
    let name = without_marks(name);
    let of = |squeezed: &str| {
        let mut alike = known.clone().filter(|tool| squeeze_name(tool) == squeezed);
        let first = alike.next();
        first.filter(|_| alike.next().is_none())
    };
    let last = name.trim().rsplit(['.', ':', '/']).next().unwrap_or(name);
    let last = last.rsplit("__").next().unwrap_or(last);
    for squeezed in [squeeze_name(name), squeeze_name(last)] {
        let bare = squeezed.strip_suffix("tool").unwrap_or(&squeezed);
        for squeezed in [&squeezed, bare] {
            let other = || OTHERS.iter().find(|(other, _)| *other == squeezed);
            let named = || known.clone().find(|tool| other().is_some_and(|(_, own)| own == tool));
            let editor = || {
                let own =
                    EDITORS.contains(&squeezed).then(|| find_editors_tool(arguments)).flatten();
                known.clone().find(|tool| Some(*tool) == own)
            };
            if let Some(tool) = of(squeezed).or_else(named).or_else(editor) {
                return Some(tool);
            }
        }
    }
    None
}

/// Returns a name without what follows it of the marks of a model's own template: `read<|channel|>commentary`.
fn without_marks(name: &str) -> &str {
    let mark = ["<|", "<\u{FF5C}"].iter().filter_map(|mark| name.find(mark)).min();
    mark.map_or(name, |at| &name[..at])
}

/// Returns the tool for what an editor's call does.
fn find_editors_tool(arguments: &str) -> Option<&'static str> {
    let arguments: Value = serde_json::from_str(arguments).ok()?;
    match arguments.get("command")?.as_str()? {
        "view" => Some("read"),
        "create" => Some("write"),
        "str_replace" => Some("edit"),
        _ => None,
    }
}

fn squeeze_name(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 12] = [
        "apply_patch",
        "edit",
        "glob",
        "grep",
        "question",
        "read",
        "shell",
        "skill",
        "todoread",
        "todowrite",
        "webfetch",
        "write",
    ];

    fn meant(name: &str, arguments: &str) -> Option<&'static str> {
        meant_tool(name, arguments, &KNOWN.into_iter())
    }

    #[test]
    fn names_from_elsewhere_mean_our_tools() {
        for (name, tool) in [
            ("read", "read"),
            ("Read", "read"),
            (" READ ", "read"),
            ("functions.read", "read"),
            ("default_api:Read_File", "read"),
            ("mcp__files__read_file", "read"),
            ("ReadTool", "read"),
            ("readFile", "read"),
            ("`read`", "read"),
            ("list", "read"),
            ("LS", "read"),
            ("bash", "shell"),
            ("run_shell_command", "shell"),
            ("container.exec", "shell"),
            ("TodoWrite", "todowrite"),
            ("todo_write", "todowrite"),
            ("applyPatch", "apply_patch"),
            ("apply-patch", "apply_patch"),
            ("Write", "write"),
            ("str_replace", "edit"),
            ("Web_Fetch", "webfetch"),
            ("grep_search", "grep"),
            ("read<|channel|>commentary", "read"),
            ("shell<|channel|>json", "shell"),
            ("functions.read<|constrain|>json", "read"),
            ("bash<\u{FF5C}tool\u{2581}sep\u{FF5C}>", "shell"),
        ] {
            assert_eq!(meant(name, "{}"), Some(tool), "{name}");
        }
        for name in
            ["", "rea", "deploy", "functions.", "functions.deploy", "task", "🦀", "<|read|>"]
        {
            assert_eq!(meant(name, "{}"), None, "{name}");
        }
    }

    #[test]
    fn an_editor_means_the_tool_for_what_it_does() {
        for (command, tool) in [
            ("view", Some("read")),
            ("create", Some("write")),
            ("str_replace", Some("edit")),
            ("undo_edit", None),
        ] {
            let arguments = format!("{{\"command\": \"{command}\", \"path\": \"a\"}}");
            for name in ["str_replace_editor", "str_replace_based_edit_tool", "text_editor"] {
                assert_eq!(meant(name, &arguments), tool, "{name} {command}");
            }
        }
        assert_eq!(meant("str_replace_editor", "no object"), None);
    }

    #[test]
    fn an_own_name_counts_first_and_only_offered_tools_are_meant() {
        assert_eq!(meant_tool("bash", "{}", &["read"].into_iter()), None);
        assert_eq!(meant_tool("bash", "{}", &["bash", "shell"].into_iter()), Some("bash"));
        let two = ["do_it", "doIt"].into_iter();
        assert_eq!(meant_tool("DOIT", "{}", &two), None, "it may be either");
    }
}
