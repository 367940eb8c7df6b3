//! Reads what a model means by arguments that are not quite what the schema wants. Each has one reading, or stays as it is.

use std::time::Duration;

use serde_json::{Map, Number, Value};

/// Names of arguments that models know from elsewhere, without case and signs, by tool.
const OTHERS: [(&[&str], &str, &[&str]); 21] = [
    (
        &["read", "write", "edit", "grep", "glob"],
        "path",
        &["filepath", "file", "filename", "absolutepath", "targetfile", "pathname"],
    ),
    (&["read", "grep", "glob"], "path", &["dir", "directory", "dirpath", "folder", "searchpath"]),
    (&["read"], "offset", &["startline", "start", "from", "linestart", "line"]),
    (&["read"], "limit", &["numlines", "maxlines", "lines", "count"]),
    (&["read"], "column", &["col"]),
    (&["write"], "append", &["isappend", "appendmode"]),
    (&["write"], "content", &["contents", "filetext", "text", "filecontent", "data"]),
    (&["edit"], "old", &["oldstring", "oldstr", "oldtext", "search", "searchstring", "find"]),
    (
        &["edit"],
        "new",
        &["newstring", "newstr", "newtext", "replacement", "replace", "replacewith"],
    ),
    (&["edit"], "all", &["replaceall", "global", "multiple"]),
    (&["shell"], "command", &["cmd", "commandline", "script", "code", "bashcommand"]),
    (
        &["shell"],
        "workdir",
        &[
            "cwd",
            "dir",
            "directory",
            "dirpath",
            "folder",
            "workingdir",
            "workingdirectory",
            "currentdirectory",
        ],
    ),
    (&["apply_patch"], "patch", &["patchtext", "input", "diff", "patchcontent"]),
    (&["grep"], "pattern", &["query", "regex", "regexp", "search", "expression"]),
    (&["grep"], "include", &["glob", "includepattern", "filepattern", "includes"]),
    (&["grep"], "ignore_case", &["i", "caseinsensitive"]),
    (&["grep"], "case_sensitive", &["matchcase"]),
    (&["grep"], "multiline", &["u", "multilinedotall"]),
    (&["glob"], "pattern", &["glob", "globpattern", "query", "filepattern"]),
    (&["webfetch"], "url", &["uri", "address", "link", "href"]),
    (&["skill"], "name", &["skill", "skillname", "command"]),
];
/// Names of a time limit in seconds, without case and signs. `timeout` is one too if it is below a thousand: those who mean
/// milliseconds give no command less than a second.
const SECONDS: [&str; 3] = ["timeoutseconds", "timeoutsecs", "timeoutsec"];
/// Names of a time limit in milliseconds.
const MILLISECONDS: [&str; 3] = ["timeoutms", "timeoutmillis", "timeoutmilliseconds"];
/// Arguments that are texts, by tool, and whether the text is a whole file.
const TEXTS: [(&str, &str, bool); 3] =
    [("write", "content", true), ("edit", "old", false), ("edit", "new", false)];
/// Arguments that are whole numbers.
const NUMBERS: [&str; 4] = ["offset", "limit", "column", "timeout_ms"];
/// Arguments that are true or false.
const FLAGS: [&str; 5] = ["all", "append", "ignore_case", "case_sensitive", "multiline"];
/// Arguments that are lists.
const LISTS: [&str; 2] = ["todos", "questions"];
/// Arguments that are paths or patterns of paths, by tool.
const PATHS: [(&[&str], &str); 4] = [
    (&["read", "write", "edit", "grep", "glob"], "path"),
    (&["shell"], "workdir"),
    (&["grep"], "include"),
    (&["glob"], "pattern"),
];
/// Names of the one member of an object around the arguments.
const WRAPPERS: [&str; 4] = ["arguments", "args", "input", "parameters"];

/// Parses a text as JSON: without the code fence around it, without commas at the ends of its lists, with line breaks in its
/// strings, and without objects that only repeat another or are empty.
pub(super) fn as_object(text: &str) -> Result<Value, serde_json::Error> {
    let text = without_fence(text);
    let value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => match find_only_object(text) {
            Some(object) => object,
            None => serde_json::from_str(&mend_text(text)).map_err(|_| error)?,
        },
    };
    Ok(unwrap_object(value))
}

/// Returns the one object that a row of objects means: proxies send `{}` before the arguments, or the arguments twice.
fn find_only_object(text: &str) -> Option<Value> {
    let mut only: Option<Value> = None;
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let value = value.ok()?;
        if value.as_object()?.is_empty() {
            continue;
        }
        let kept = only.get_or_insert_with(|| value.clone());
        if *kept != value {
            return None;
        }
    }
    only
}

/// Returns the text within a code fence.
pub(crate) fn without_fence(text: &str) -> &str {
    let text = text.trim();
    let inner = || {
        let fence = ["```", "~~~"].into_iter().find(|fence| text.starts_with(fence))?;
        let (first, rest) = text.split_once('\n')?;
        let is_language =
            first[fence.len()..].trim().chars().all(|c| c.is_alphanumeric() || "_-+".contains(c));
        let inner = rest.trim_end().strip_suffix(fence).filter(|_| is_language)?;
        Some(inner.trim_end_matches(' ').strip_suffix('\n').unwrap_or(inner))
    };
    inner().unwrap_or(text)
}

/// Takes away each comma before a closing bracket, and writes line breaks, tabs and backslashes within strings as JSON wants
/// them: models write code as it is.
fn mend_text(text: &str) -> String {
    let (mut mended, mut is_quoted) = (String::with_capacity(text.len()), false);
    let mut letters = text.char_indices();
    while let Some((at, c)) = letters.next() {
        match c {
            '\\' if is_quoted => {
                let rest = &text[at + 1..];
                let is_code = |code: &str| code.bytes().all(|byte| byte.is_ascii_hexdigit());
                let is_escape = match rest.chars().next() {
                    Some('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => true,
                    Some('u') => rest.get(1..5).is_some_and(is_code),
                    Some(_) | None => false,
                };
                mended.push(c);
                if is_escape {
                    mended.extend(letters.next().map(|(_, escaped)| escaped));
                } else {
                    mended.push(c);
                }
            }
            '\n' if is_quoted => mended.push_str("\\n"),
            '\r' if is_quoted => mended.push_str("\\r"),
            '\t' if is_quoted => mended.push_str("\\t"),
            ',' if !is_quoted && text[at + 1..].trim_start().starts_with(['}', ']']) => {}
            c => {
                is_quoted ^= c == '"';
                mended.push(c);
            }
        }
    }
    mended
}

/// Takes an object out of a text, and out of an object of which it is the only member.
fn unwrap_object(value: Value) -> Value {
    let of_text = |text: &str| serde_json::from_str(text).ok().filter(Value::is_object);
    let inner = if let Some(fields) = value.as_object().filter(|fields| fields.len() == 1) {
        let inner = fields.iter().find(|(name, _)| WRAPPERS.contains(&name.as_str()));
        inner.and_then(|(_, inner)| {
            inner.as_str().map_or_else(|| Some(inner.clone()).filter(Value::is_object), of_text)
        })
    } else {
        value.as_str().and_then(of_text)
    };
    inner.unwrap_or(value)
}

/// Gives the arguments of a call of `tool` their own names and types.
pub(super) fn in_own_terms(tool: &str, fields: &mut Map<String, Value>) {
    for (_, own, others) in OTHERS.iter().filter(|(tools, ..)| tools.contains(&tool)) {
        let is_other = |name: &&String| {
            *name != own
                && (squeeze_name(name) == squeeze_name(own)
                    || others.contains(&squeeze_name(name).as_str()))
        };
        let found: Vec<String> = fields.keys().filter(is_other).cloned().collect();
        for other in found {
            match (fields.get(*own), fields.get(&other)) {
                (None | Some(Value::Null), Some(_)) => {
                    if let Some(value) = fields.remove(&other) {
                        fields.insert((*own).to_owned(), value);
                    }
                }
                (Some(kept), Some(value)) if kept == value => {
                    fields.remove(&other);
                }
                _ => {}
            }
        }
    }
    if tool == "shell" {
        read_timeout(fields);
    }
    for name in NUMBERS {
        change_field(fields, name, read_whole);
    }
    for name in FLAGS {
        change_field(fields, name, read_flag);
    }
    for name in LISTS {
        change_field(fields, name, |value| {
            let list = serde_json::from_str(value.as_str()?).ok()?;
            Some(list).filter(Value::is_array)
        });
    }
    for (_, name) in PATHS.iter().filter(|(tools, _)| tools.contains(&tool)) {
        // Never meant: models write what a command printed.
        change_field(fields, name, |value| Some(value.as_str()?.trim_matches(['\r', '\n']).into()));
    }
    for (_, name, is_file) in TEXTS.iter().filter(|(of, ..)| *of == tool) {
        change_field(fields, name, |value| write_json(value, *is_file));
    }
    if tool == "shell" {
        change_field(fields, "command", |value| join_command(value.as_array()?).map(Value::String));
        change_field(fields, "command", |value| {
            let command = value.as_str()?.replace("\r\n", "\n");
            Some(Value::from(command.trim_end_matches('\r')))
        });
    }
    let has_flag = |name: &str, flag: bool| fields.get(name) == Some(&Value::Bool(flag));
    if tool == "grep" && (has_flag("ignore_case", true) || has_flag("case_sensitive", false)) {
        change_field(fields, "pattern", |value| {
            Some(Value::String(format!("(?i){}", value.as_str()?)))
        });
    }
}

/// Reads a time limit by the names of others as `timeout_ms`, unless there is one. Zero is none, by any name.
fn read_timeout(fields: &mut Map<String, Value>) {
    if fields.get("timeout_ms").is_some_and(|own| read_limit("timeoutms", own) == Some(0)) {
        fields.remove("timeout_ms");
    }
    let is_other = |name: &&String| {
        let squeezed = squeeze_name(name);
        let squeezed = squeezed.as_str();
        let is_limit = SECONDS.contains(&squeezed) || MILLISECONDS.contains(&squeezed);
        *name != "timeout_ms" && (is_limit || squeezed == "timeout")
    };
    let others: Vec<String> = fields.keys().filter(is_other).cloned().collect();
    for other in others {
        let Some(value) = fields.remove(&other) else { continue };
        let is_known = fields.get("timeout_ms").is_some_and(|own| !own.is_null());
        let limit = read_limit(&squeeze_name(&other), &value);
        if !is_known && limit != Some(0) {
            fields.insert("timeout_ms".to_owned(), limit.map_or(value, Value::from));
        }
    }
}

/// Reads a time limit of this squeezed name, in milliseconds.
fn read_limit(name: &str, value: &Value) -> Option<u64> {
    let number: f64 = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    let is_seconds = SECONDS.contains(&name) || (name == "timeout" && number < 1_000.0);
    let seconds = if is_seconds { number } else { number / 1_000.0 };
    u64::try_from(Duration::try_from_secs_f64(seconds).ok()?.as_millis()).ok()
}

/// Writes an object or a list as the text that it is in a file.
fn write_json(value: &Value, is_file: bool) -> Option<Value> {
    if !value.is_object() && !value.is_array() {
        return None;
    }
    let text = serde_json::to_string_pretty(value).ok()?;
    Some(Value::String(if is_file { text + "\n" } else { text }))
}

fn change_field(
    fields: &mut Map<String, Value>,
    name: &str,
    read: impl FnOnce(&Value) -> Option<Value>,
) {
    if fields.get(name) == Some(&Value::Null) {
        fields.remove(name);
    } else if let Some(value) = fields.get_mut(name)
        && let Some(read) = read(value)
    {
        *value = read;
    }
}

/// Reads a whole number from its text, or from a fraction that is none.
fn read_whole(value: &Value) -> Option<Value> {
    let fraction = || Some(value.as_f64()?.to_string()).filter(|_| value.is_f64());
    let text = value.as_str().map(|text| text.trim().to_owned()).or_else(fraction)?;
    let digits = match text.split_once('.') {
        Some((digits, zeros)) if zeros.chars().all(|c| c == '0') => digits,
        Some(_) => return None,
        None => &text,
    };
    let number = digits.parse::<u64>().map(Number::from);
    number.or_else(|_| digits.parse::<i64>().map(Number::from)).ok().map(Value::Number)
}

fn read_flag(value: &Value) -> Option<Value> {
    match value.as_str()?.trim().to_lowercase().as_str() {
        "true" => Some(Value::Bool(true)),
        "false" => Some(Value::Bool(false)),
        _ => None,
    }
}

/// Returns the command line of a list of words.
fn join_command(words: &[Value]) -> Option<String> {
    let words: Option<Vec<&str>> = words.iter().map(Value::as_str).collect();
    let words = words.filter(|words| !words.is_empty())?;
    if let [shell, option, script] = words.as_slice()
        && ["bash", "sh", "zsh"].contains(&shell.rsplit('/').next().unwrap_or(shell))
        && ["-c", "-lc"].contains(option)
    {
        return Some((*script).to_owned());
    }
    // One text is a line already.
    if let [line] = words.as_slice() {
        return Some((*line).to_owned());
    }
    Some(words.into_iter().map(quote_word).collect::<Vec<_>>().join(" "))
}

/// Returns a word as a shell reads it.
pub(crate) fn quote_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@,+%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn squeeze_name(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(tool: &str, arguments: Value) -> Value {
        let Value::Object(mut fields) = arguments else { panic!("an object") };
        in_own_terms(tool, &mut fields);
        Value::Object(fields)
    }

    // Public reports: models write code into a string as it is.
    #[test]
    fn strings_with_line_breaks_and_odd_escapes_are_read() {
        for (text, meant) in [
            ("{\"a\": \"x\n\ty\r\n\"}", "x\n\ty\r\n"),
            (r#"{"a": "\d+\.\u12\\"}"#, r"\d+\.\u12\"),
            (r#"{"a": "\"\u0041\n",}"#, "\"A\n"),
        ] {
            assert_eq!(as_object(text).unwrap(), json!({ "a": meant }), "{text}");
        }
        assert!(as_object("{\"a\": \"x").is_err());
    }

    #[test]
    fn arguments_by_other_names_are_taken() {
        let edit = json!({"path": "a", "old": "b", "new": "c", "all": true});
        for other in [
            json!({"file_path": "a", "old_string": "b", "new_string": "c", "replace_all": "true"}),
            json!({"filePath": "a", "oldString": "b", "newString": "c", "replaceAll": true}),
            json!({"path": "a", "old_str": "b", "new_str": "c", "all": "True"}),
        ] {
            assert_eq!(read("edit", other), edit);
        }
        assert_eq!(
            read("write", json!({"path": "a", "file_text": "x"})),
            json!({"path": "a", "content": "x"})
        );
        assert_eq!(
            read("grep", json!({"query": "x", "glob": "*.rs"})),
            json!({"pattern": "x", "include": "*.rs"})
        );
        assert_eq!(read("webfetch", json!({"file_path": "a"})), json!({"file_path": "a"}));
        for name in ["skill", "skill_name", "command", "name"] {
            assert_eq!(read("skill", json!({ name: "a" })), json!({"name": "a"}));
        }
    }

    #[test]
    fn a_command_in_pieces_is_one_line() {
        for (given, expected) in [
            (json!(["bash", "-lc", "echo hi; ls"]), "echo hi; ls"),
            (json!(["/bin/sh", "-c", "x"]), "x"),
            (json!(["git", "commit", "-m", "it's"]), r"git commit -m 'it'\''s'"),
            (json!(["ls -l"]), "ls -l"),
            (json!(["ls", ""]), "ls ''"),
        ] {
            assert_eq!(read("shell", json!({"cmd": given})), json!({"command": expected}));
        }
        let odd = json!({"command": ["a", 1]});
        assert_eq!(read("shell", odd.clone()), odd);
        assert_eq!(
            read("shell", json!({"command": "x", "timeout": "5.0"})),
            json!({"command": "x", "timeout_ms": 5_000})
        );
    }

    // The public report mistral-vibe#138: a limit in seconds ended the command at once.
    #[test]
    fn a_time_limit_has_the_unit_of_its_name() {
        for (name, given, expected) in [
            ("timeout", json!(30), json!(30_000)),
            ("timeout", json!(0.5), json!(500)),
            ("timeout", json!("90"), json!(90_000)),
            ("timeout", json!(1_000), json!(1_000)),
            ("timeout", json!(120_001), json!(120_001)),
            ("timeout_seconds", json!(1_800), json!(1_800_000)),
            ("timeoutSec", json!(2), json!(2_000)),
            ("timeout_secs", json!("2"), json!(2_000)),
            ("timeoutMs", json!(30), json!(30)),
            ("timeout_ms", json!("30"), json!(30)),
            ("timeout", json!("soon"), json!("soon")),
        ] {
            let read = read("shell", json!({"command": "x", name: given}));
            assert_eq!(read, json!({"command": "x", "timeout_ms": expected}), "{name}");
        }
        assert_eq!(read("shell", json!({"timeout": 0})), json!({}));
        let both = json!({"timeout": 5, "timeout_ms": 7});
        assert_eq!(read("shell", both), json!({"timeout_ms": 7}));
    }

    // Finding: report 30-b12 (bojieli/ai-agent-book#310): 0, meant as none, killed the command at once.
    #[test]
    fn a_time_limit_of_zero_is_none() {
        for zero in [json!(0), json!("0"), json!(0.0), json!(" 0 ")] {
            assert_eq!(read("shell", json!({"timeout_ms": zero})), json!({}));
        }
        let both = json!({"timeout_ms": 0, "timeout": 5});
        assert_eq!(read("shell", both), json!({"timeout_ms": 5_000}));
    }

    // Finding: report 30-b13 (anomalyco/opencode#43112): a line break at its end made a file of that name.
    #[test]
    fn a_path_has_no_line_breaks_at_its_ends() {
        for tool in ["read", "write", "edit", "grep", "glob"] {
            let given = json!({"file_path": "\r\nrule set.md \r\n"});
            assert_eq!(read(tool, given), json!({"path": "rule set.md "}), "{tool}");
        }
        assert_eq!(read("shell", json!({"cwd": "sub\n"})), json!({"workdir": "sub"}));
        assert_eq!(read("glob", json!({"pattern": "*.rs\n"})), json!({"pattern": "*.rs"}));
        assert_eq!(read("grep", json!({"pattern": "a\n"})), json!({"pattern": "a\n"}));
        assert_eq!(read("read", json!({"path": "a\nb"})), json!({"path": "a\nb"}));
    }

    // The public report windmill#10131: `mkdir d` with CR LF made a directory `d\r`.
    #[test]
    fn a_command_has_no_carriage_returns_at_its_line_ends() {
        for (given, expected) in [
            ("mkdir d\r\ncd d\r\npwd\r\n", "mkdir d\ncd d\npwd\n"),
            ("pwd\r", "pwd"),
            ("printf 'a\rb'", "printf 'a\rb'"),
        ] {
            assert_eq!(read("shell", json!({"command": given})), json!({"command": expected}));
        }
    }

    // The public report claude-code#6690: `content` as an object was refused.
    #[test]
    fn an_object_as_a_text_is_its_json() {
        let written = read("write", json!({"path": "a", "content": {"b": 1}}));
        assert_eq!(written["content"], "{\n  \"b\": 1\n}\n");
        assert_eq!(read("write", json!({"content": [2]}))["content"], "[\n  2\n]\n");
        assert_eq!(read("edit", json!({"new_string": [2]}))["new"], "[\n  2\n]");
        assert_eq!(read("write", json!({"content": 3})), json!({"content": 3}));
    }

    #[test]
    fn case_is_ignored_by_any_name_for_it() {
        for other in [
            json!({"pattern": "a", "-i": true}),
            json!({"pattern": "a", "ignoreCase": "true"}),
            json!({"pattern": "a", "case_sensitive": false}),
            json!({"pattern": "a", "caseInsensitive": true}),
        ] {
            assert_eq!(read("grep", other)["pattern"], "(?i)a");
        }
        for same in [json!({"pattern": "a", "-i": false}), json!({"pattern": "a", "i": null})] {
            assert_eq!(read("grep", same)["pattern"], "a");
        }
    }

    #[test]
    fn lists_are_read_from_their_text() {
        assert_eq!(
            read("todowrite", json!({"todos": "[{\"a\": 1}]"})),
            json!({"todos": [{"a": 1}]})
        );
        assert_eq!(read("todowrite", json!({"todos": "none"})), json!({"todos": "none"}));
    }
}
