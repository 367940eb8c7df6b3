//! Reads settings texts into a [`Sheet`], with a remark on every entry that does not count.

use domain::Word as _;

use crate::agent::{AgentChange, AgentMode};
use crate::command::CommandDefinition;
use crate::diagnostic::{Diagnostic, Remarks, shown};
use crate::front;
use crate::named_text::{ReadText, fill_files};
use crate::permissions::Layer;
use crate::rules;
use crate::sheet::{Sheet, SheetBounds};
use crate::tree::{Entry, Node, Tree};
use crate::value::{bounded, flag, hours, line, model, of_map, retries, steps, text, tokens};

/// The most agents, and the most commands, of one text.
const MAX_NAMED: usize = 200;
/// The most rules of one text.
const MAX_RULES: usize = 1_000;
/// The longest instructions or template, in bytes.
const MAX_TEXT: usize = 64 * 1024;
/// What agents and commands have, and its longest text.
const INSTRUCTIONS: (&str, usize) = ("the instructions", MAX_TEXT);
const TEMPLATE: (&str, usize) = ("the template", MAX_TEXT);
/// The longest name, in bytes.
const MAX_NAME: usize = 64;

/// Settings of the original that say something about providers. They are an organisation's.
const OF_PROVIDERS: [&str; 6] =
    ["provider", "providers", "model", "small_model", "enabled_providers", "disabled_providers"];
/// Settings of the original that have no effect here, and on which a project may rely.
const UNUSED_AND_MISSED: [&str; 6] =
    ["mcp", "plugin", "plugins", "formatter", "lsp", "instructions"];
/// Settings by which a project makes itself stricter. A slip of the finger in one of them must not go by in silence.
const OF_RULES: [&str; 8] = [
    "permission",
    "permissions",
    "tools",
    "agent",
    "agents",
    "default_agent",
    "steps",
    "compaction",
];
/// The same, of an agent.
const OF_AGENT_RULES: [&str; 6] =
    ["permission", "permissions", "tools", "disable", "disabled", "steps"];
/// Settings of the original that have no effect here, mostly of clients.
const UNUSED: [&str; 25] = [
    "share",
    "autoshare",
    "autoupdate",
    "update",
    "snapshot",
    "snapshots",
    "watcher",
    "username",
    "theme",
    "keybinds",
    "tui",
    "layout",
    "logLevel",
    "server",
    "experimental",
    "enterprise",
    "skills",
    "media",
    "tool_output",
    "shell",
    "references",
    "websearch",
    "warming",
    "attachment",
    "mode",
];
/// Settings that may have no value: those that make nothing stricter.
const MAY_BE_EMPTY: [&str; 5] = ["titles", "command", "commands", "asks", "retries"];
/// The same, of an agent.
const MAY_BE_EMPTY_OF_AGENTS: [&str; 8] =
    ["description", "prompt", "system", "mode", "hidden", "model", "variant", "color"];
/// The same, of a command.
const MAY_BE_EMPTY_OF_COMMANDS: [&str; 5] =
    ["description", "agent", "model", "subtask", "template"];
/// Settings of agents of the original that have no effect here.
const UNUSED_OF_AGENTS: [&str; 6] = ["temperature", "top_p", "options", "request", "cache", "name"];

/// Reads an `opencode.json` or an organisation's text.
/// `None`: nothing of it can be read.
pub(crate) fn config(
    text: &str,
    layer: Layer,
    read: &mut ReadText<'_>,
    remarks: &mut Remarks<'_>,
) -> Option<Sheet> {
    let node = match Node::from_jsonc(text) {
        Ok(node) => node,
        Err(unreadable) => {
            let message =
                format!("nothing of it counts: it cannot be read as JSON: {}", unreadable.why);
            remarks.error(unreadable.line, message);
            return None;
        }
    };
    let Tree::Map(entries) = &node.value else {
        remarks.error(node.line, format!("settings are an object, not {}", node.kind()));
        return None;
    };
    let mut sheet = Sheet::default();
    // The older form comes first, so that `permission` wins.
    for Entry { value, .. } in entries.iter().filter(|entry| entry.key == "tools") {
        sheet.rules.append(&mut rules::tools(value, remarks));
    }
    for entry in entries {
        of_config(entry, layer, &mut sheet, read, remarks);
    }
    bound_rules(&mut sheet.rules, node.line, remarks);
    Some(sheet)
}

fn of_config(
    entry: &Entry,
    layer: Layer,
    sheet: &mut Sheet,
    read: &mut ReadText<'_>,
    remarks: &mut Remarks<'_>,
) {
    let Entry { key, value } = entry;
    if is_left_empty(entry, &MAY_BE_EMPTY, remarks) {
        return;
    }
    match key.as_str() {
        "$schema" | "tools" => {}
        "permission" | "permissions" => sheet.rules.append(&mut rules::permission(value, remarks)),
        "agent" | "agents" => {
            for Entry { key: name, value } in named(value, "agent", remarks) {
                if let Some(entries) = of_map(value, remarks) {
                    let change = agent(entries, read, remarks);
                    sheet.agents.entry(name.clone()).or_default().merge(change);
                }
            }
        }
        "command" | "commands" => {
            for Entry { key: name, value } in named(value, "command", remarks) {
                let Some(entries) = of_map(value, remarks) else { continue };
                let at = value.line;
                if let Some(command) = command(name, entries, None, (layer, at), read, remarks) {
                    sheet.commands.insert(name.clone(), command);
                }
            }
        }
        "default_agent" => sheet.default_agent = line(value, key, remarks),
        "steps" => sheet.bounds.steps = steps(value, remarks),
        "titles" => sheet.bounds.titles = flag(value, key, remarks),
        "compaction" => compaction(value, &mut sheet.bounds, remarks),
        "asks" | "retries" if layer == Layer::Project => {
            remarks.note(value.line, format!("`{key}` counts only in the organisation's settings"));
        }
        "asks" => asks(value, &mut sheet.bounds, remarks),
        "retries" => sheet.bounds.retries = retries(value, remarks),
        "projects_may_allow" if layer == Layer::Organisation => {
            sheet.projects_may_allow = actions(value, remarks);
        }
        "projects_may_allow" => remarks.note(value.line, "`projects_may_allow` counts only in the organisation's settings"),
        known if OF_PROVIDERS.contains(&known) => remarks.idle(
            value.line,
            format!("`{known}` does not count here: providers and models are set for the organisation, and a prompt, an agent or a command chooses among them"),
        ),
        known if UNUSED_AND_MISSED.contains(&known) => {
            remarks.idle(value.line, format!("`{known}` has no effect here"));
        }
        known if UNUSED.contains(&known) => {
            remarks.note(value.line, format!("`{known}` has no effect here"));
        }
        unknown => no_setting(unknown, value.line, remarks),
    }
}

/// Returns whether one of some settings has no value, and says that: it is as if it were not there. In YAML the value of
/// `color: #9B59B6` is a comment.
fn is_left_empty(entry: &Entry, settings: &[&str], remarks: &mut Remarks<'_>) -> bool {
    let Entry { key, value } = entry;
    let is_empty = matches!(value.value, Tree::Null) && settings.contains(&key.as_str());
    if is_empty {
        remarks.note(value.line, format!("`{key}` has no value and does not count"));
    }
    is_empty
}

/// Says that there is no such setting. One that looks like a setting which makes stricter may have been meant as that.
fn no_setting(name: &str, line: u32, remarks: &mut Remarks<'_>) {
    let message = format!("there is no setting `{}`", shown(name));
    match find_meant(name, &OF_RULES) {
        Some(meant) => remarks.error(line, format!("{message}; did you mean `{meant}`?")),
        None => remarks.stray(line, message),
    }
}

/// Returns which of some settings a name with a slip of the finger means.
fn find_meant<'s>(name: &str, settings: &[&'s str]) -> Option<&'s str> {
    let lower = name.trim().to_lowercase();
    similar::get_close_matches(lower.as_str(), settings, 1, 0.75).first().copied()
}

/// Reads a Markdown file about an agent: its front matter, and its instructions.
/// `None`: it cannot be read.
pub(crate) fn markdown_agent(
    name: &str,
    text: &str,
    read: &mut ReadText<'_>,
    remarks: &mut Remarks<'_>,
) -> Option<Sheet> {
    let mut sheet = Sheet::default();
    let (entries, body) = markdown(name, "agent", text, remarks)?;
    let mut change = agent(&entries, read, remarks);
    let instructions = bounded(body, 0, INSTRUCTIONS.0, MAX_TEXT, remarks);
    if instructions.is_none() && !body.trim().is_empty() {
        change.lost = remarks.first_error().map(Diagnostic::message_with_place);
    }
    change.instructions = instructions.or(change.instructions);
    bound_rules(&mut change.rules, 0, remarks);
    sheet.agents.insert(name.to_owned(), change);
    Some(sheet)
}

/// Reads a Markdown file about a command: its front matter, and its template.
/// `None`: it cannot be read.
pub(crate) fn markdown_command(
    name: &str,
    text: &str,
    read: &mut ReadText<'_>,
    remarks: &mut Remarks<'_>,
) -> Option<Sheet> {
    let mut sheet = Sheet::default();
    let (entries, body) = markdown(name, "command", text, remarks)?;
    let origin = (Layer::Project, 0);
    if let Some(command) = command(name, &entries, Some(body), origin, read, remarks) {
        sheet.commands.insert(name.to_owned(), command);
    }
    Some(sheet)
}

/// Splits a Markdown file. `None`: it cannot be read at all.
fn markdown<'t>(
    name: &str,
    what: &str,
    text: &'t str,
    remarks: &mut Remarks<'_>,
) -> Option<(Vec<Entry>, &'t str)> {
    if !is_name(name) {
        remarks.stray(0, wrong_name(name, what));
        return None;
    }
    let Some((front, body)) = front::split(text) else {
        remarks.error(1, "its front matter does not end with a line of `---`");
        return None;
    };
    match Node::from_yaml(front, 1) {
        Ok(Node { value: Tree::Map(entries), .. }) => Some((entries, body)),
        Ok(Node { value: Tree::Null, .. }) => Some((Vec::new(), body)),
        Ok(node) => {
            remarks
                .error(1, format!("its front matter is not keys with values, but {}", node.kind()));
            None
        }
        Err(unreadable) => {
            remarks.error(
                unreadable.line,
                format!("its front matter cannot be read: {}", unreadable.why),
            );
            None
        }
    }
}

fn agent(entries: &[Entry], read: &mut ReadText<'_>, remarks: &mut Remarks<'_>) -> AgentChange {
    let mut change = AgentChange::default();
    let mut variant = None;
    for Entry { value, .. } in entries.iter().filter(|entry| entry.key == "tools") {
        change.rules.append(&mut rules::tools(value, remarks));
    }
    for entry in entries {
        let Entry { key, value } = entry;
        if is_left_empty(entry, &MAY_BE_EMPTY_OF_AGENTS, remarks) {
            continue;
        }
        match key.as_str() {
            "tools" => {}
            "description" => change.description = line(value, key, remarks),
            "prompt" | "system" => {
                let Some(text) = text(value, key, remarks) else { continue };
                match fill_files(text, INSTRUCTIONS, value.line, read, remarks) {
                    Ok(text) => {
                        change.instructions =
                            bounded(&text, value.line, INSTRUCTIONS.0, MAX_TEXT, remarks);
                    }
                    // A project's agent is refused. An organisation's text is, if it is not an old one.
                    Err(why) => {
                        let letters = Some(text).filter(|text| text.len() <= MAX_TEXT);
                        change.instructions = letters.map(|text| text.replace('\0', "\u{FFFD}"));
                        change.lost = Some(why);
                    }
                }
            }
            "mode" => {
                let word = line(value, key, remarks);
                change.mode = word.and_then(|word| {
                    let mode = AgentMode::read(&word);
                    if mode.is_none() {
                        remarks.error(
                            value.line,
                            format!(
                                "a `mode` is `primary`, `subagent` or `all`, not `{}`",
                                shown(&word)
                            ),
                        );
                    }
                    mode
                });
            }
            "hidden" => change.hidden = flag(value, key, remarks),
            "disable" | "disabled" => change.disabled = flag(value, key, remarks),
            "steps" | "maxSteps" => change.steps = steps(value, remarks),
            "model" => change.model = model(value, remarks),
            "variant" => variant = line(value, key, remarks),
            "color" => change.color = line(value, key, remarks),
            "permission" | "permissions" => {
                change.rules.append(&mut rules::permission(value, remarks));
            }
            known if UNUSED_OF_AGENTS.contains(&known) => {
                remarks.note(value.line, format!("`{known}` of an agent has no effect here"));
            }
            // The released client passes what it does not know on to the provider.
            unknown => {
                let message = format!("`{}` is no setting of an agent", shown(unknown));
                match find_meant(unknown, &OF_AGENT_RULES) {
                    Some(meant) => {
                        remarks.error(value.line, format!("{message}; did you mean `{meant}`?"));
                    }
                    None => remarks.note(value.line, message),
                }
            }
        }
    }
    if let Some(model) = &mut change.model {
        model.variant = variant;
    }
    change
}

fn command(
    name: &str,
    entries: &[Entry],
    body: Option<&str>,
    (layer, at): (Layer, u32),
    read: &mut ReadText<'_>,
    remarks: &mut Remarks<'_>,
) -> Option<CommandDefinition> {
    let mut made = CommandDefinition {
        name: name.to_owned(),
        description: String::new(),
        agent: None,
        model: None,
        subtask: false,
        template: String::new(),
        layer,
    };
    let mut template = body.map(str::to_owned);
    for entry in entries {
        let Entry { key, value } = entry;
        if is_left_empty(entry, &MAY_BE_EMPTY_OF_COMMANDS, remarks) {
            continue;
        }
        match key.as_str() {
            "template" if body.is_none() => {
                let Some(text) = text(value, key, remarks) else { continue };
                // What cannot be put in is told: a command without it is none.
                template = Some(fill_files(text, TEMPLATE, value.line, read, remarks).ok()?);
            }
            "description" => made.description = line(value, key, remarks).unwrap_or_default(),
            "agent" => made.agent = line(value, key, remarks),
            "model" => made.model = model(value, remarks),
            "subtask" => made.subtask = flag(value, key, remarks).unwrap_or_default(),
            unknown => {
                remarks.note(value.line, format!("`{}` is no setting of a command", shown(unknown)))
            }
        }
    }
    made.template = bounded(&template.unwrap_or_default(), at, TEMPLATE.0, MAX_TEXT, remarks)
        .or_else(|| {
            remarks.stray(
                at,
                format!("the command `{}` has no template and does not count", shown(name)),
            );
            None
        })?;
    Some(made)
}

fn compaction(node: &Node, bounds: &mut SheetBounds, remarks: &mut Remarks<'_>) {
    for Entry { key, value } in of_map(node, remarks).unwrap_or_default() {
        match key.as_str() {
            "auto" => bounds.auto = flag(value, key, remarks),
            "buffer" | "reserved" => bounds.buffer = tokens(value, key, remarks),
            "answer" => bounds.answer = tokens(value, key, remarks),
            "keep" | "preserve_recent_tokens" => {
                bounds.keep = match &value.value {
                    Tree::Map(entries) => {
                        let inner = entries.iter().find(|entry| entry.key == "tokens");
                        inner.and_then(|entry| tokens(&entry.value, key, remarks))
                    }
                    Tree::Null
                    | Tree::Bool(_)
                    | Tree::Number(_)
                    | Tree::Text(_)
                    | Tree::List(_) => tokens(value, key, remarks),
                }
            }
            "prune" | "tail_turns" => {
                remarks.note(value.line, format!("`{key}` of `compaction` has no effect here"))
            }
            unknown => remarks.stray(
                value.line,
                format!("there is no setting `{}` of `compaction`", shown(unknown)),
            ),
        }
    }
}

fn asks(node: &Node, bounds: &mut SheetBounds, remarks: &mut Remarks<'_>) {
    for Entry { key, value } in of_map(node, remarks).unwrap_or_default() {
        match key.as_str() {
            "hours" => bounds.ask_hours = hours(value, remarks),
            unknown => remarks
                .error(value.line, format!("there is no setting `{}` of `asks`", shown(unknown))),
        }
    }
}

fn actions(node: &Node, remarks: &mut Remarks<'_>) -> Vec<String> {
    let Tree::List(nodes) = &node.value else {
        remarks.error(
            node.line,
            format!("`projects_may_allow` is a list of actions, not {}", node.kind()),
        );
        return Vec::new();
    };
    let mut actions = Vec::new();
    for node in nodes {
        let Some(name) = line(node, "projects_may_allow", remarks) else { continue };
        if name.contains(['*', '?']) {
            remarks.error(
                node.line,
                "`projects_may_allow` names each action: a pattern does not count",
            );
        } else {
            actions.push(rules::action_of(&name).to_owned());
        }
    }
    actions
}

/// Returns the entries of a map of agents or commands whose names are fine.
fn named<'n>(node: &'n Node, what: &str, remarks: &mut Remarks<'_>) -> Vec<&'n Entry> {
    let entries = of_map(node, remarks).unwrap_or_default();
    if entries.len() > MAX_NAMED {
        remarks.error(
            node.line,
            format!("there are at most {MAX_NAMED} of `{what}`: the first ones count"),
        );
    }
    let mut fine = Vec::new();
    for entry in entries.iter().take(MAX_NAMED) {
        if is_name(&entry.key) {
            fine.push(entry);
        } else {
            remarks.stray(entry.value.line, wrong_name(&entry.key, what));
        }
    }
    fine
}

/// Returns whether a text can be a name: that of a file, behind those of the folders that it is in.
fn is_name(name: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let is_part = |part: &str| !part.is_empty() && part.chars().all(is_fine);
    name.len() <= MAX_NAME && name.split('/').all(is_part)
}

fn wrong_name(name: &str, what: &str) -> String {
    format!(
        "`{}` cannot be the name of {}: it has 1 to {MAX_NAME} letters, digits, `_`, `-` or `.`, and `/` between folders",
        shown(name),
        if what == "agent" { "an agent" } else { "a command" }
    )
}

fn bound_rules(rules: &mut Vec<rules::Rule>, at: u32, remarks: &mut Remarks<'_>) {
    if rules.len() > MAX_RULES {
        remarks.error(
            at,
            format!(
                "there are at most {MAX_RULES} permission rules: those after them do not count"
            ),
        );
        rules.truncate(MAX_RULES);
    }
}
