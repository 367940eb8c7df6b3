//! The tools of a Location, by name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use domain::{ToolClass, ToolOutcomeKind, meant_tool};
use egress::Egress;
use jsonschema::Validator;
use sandbox::Sandbox;

use crate::call::{Probe, Stopped, Text, ToolCall, ToolContext, ToolDefinition, ToolOutcome};
use crate::replace::FileLocks;

/// The most tools of a set.
const MAX_TOOLS: usize = 128;
/// The most bytes of all definitions of a set: each request has them.
const MAX_BYTES: usize = 256 * 1024;
/// The longest name of a tool, in bytes, that all providers take.
const MAX_NAME: usize = 64;

/// One tool.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Returns what the model is told of it. A set asks once, when it is made.
    fn definition(&self) -> ToolDefinition;

    /// Returns what a takeover may do with a call of it that had started.
    fn class(&self) -> ToolClass;

    /// Runs one body of a call.
    ///
    /// # Errors
    /// The reason why there is no result, which the model gets.
    async fn run(&self, call: &ToolCall, context: &ToolContext) -> Result<ToolOutcome, Stopped>;

    /// Looks for the effect of a call that had started. Called only for class *probe*.
    async fn probe(&self, _call: &ToolCall, _context: &ToolContext) -> Probe {
        Probe::Unclear
    }
}

/// A tool with its facts, which do not change while its set exists.
struct SetEntry {
    definition: ToolDefinition,
    class: ToolClass,
    tool: Box<dyn Tool>,
    /// Judges its structured results.
    results: Option<Validator>,
}

impl SetEntry {
    /// Takes a tool into a set. The error says why it cannot be.
    fn of(tool: Box<dyn Tool>) -> Result<Self, String> {
        let (definition, class) = (tool.definition(), tool.class());
        let name = &definition.name;
        if !is_name(name) {
            return Err(format!(
                "the tool {name} is not offered: its name must have 1 to 64 letters, digits, `_` and `-`"
            ));
        }
        let results = definition.result_schema.as_ref().map(jsonschema::draft202012::new);
        let results = results.transpose().map_err(|error| {
            format!("the tool {name} is not offered: the schema of its results is wrong: {error}")
        })?;
        Ok(Self { definition, class, tool, results })
    }

    /// Returns a call of it by its own name.
    fn named<'c>(&self, call: &'c ToolCall) -> Cow<'c, ToolCall> {
        let name = &self.definition.name;
        if call.name == *name {
            return Cow::Borrowed(call);
        }
        Cow::Owned(ToolCall { name: name.clone(), ..call.clone() })
    }

    /// Returns the bytes that each request has of it.
    fn bytes(&self) -> usize {
        let ToolDefinition { name, description, input_schema, result_schema: _ } = &self.definition;
        name.len() + description.len() + input_schema.to_string().len()
    }

    /// Lets no structured result out that its schema does not describe: clients rely on the form. Its effects stand.
    fn checked(&self, outcome: ToolOutcome) -> ToolOutcome {
        let Some(value) = &outcome.structured else { return outcome };
        let told = match &self.results {
            Some(results) => results.validate(value).map_err(|error| error.to_string()),
            None => Err("it promised none".to_owned()),
        };
        let Err(why) = told else { return outcome };
        let text = format!(
            "the tool ran, and its result does not have the form that it promised ({why}): look at its effects before \
             you call it again"
        );
        let (kind, text) = (ToolOutcomeKind::Failed, Text::Whole(text));
        ToolOutcome { kind, text, structured: None, footer: String::new(), ..outcome }
    }
}

/// The tools that are offered together, ordered by name. A set never changes: other tools are another set. Cheap to clone.
#[derive(Clone)]
pub struct ToolSet {
    tools: Arc<BTreeMap<String, SetEntry>>,
}

impl ToolSet {
    /// Makes `edit`, `glob`, `grep`, `read`, `shell`, `skill` and `write`; commands run in `sandbox`.
    pub fn standard(sandbox: Arc<dyn Sandbox>) -> Self {
        Self::of(standard(sandbox, &Arc::default())).0
    }

    /// Makes those of [`ToolSet::standard`], and `apply_patch`, `question`, `todoread`, `todowrite` and `webfetch`.
    /// Pages are fetched through `egress`.
    pub fn with_web(sandbox: Arc<dyn Sandbox>, egress: &Egress) -> Self {
        let locks = Arc::default();
        let mut tools = standard(sandbox, &locks);
        tools.push(Box::new(crate::apply_patch::ApplyPatch { locks }));
        tools.push(Box::new(crate::question::AskUser));
        tools.push(Box::new(crate::todo::TodoRead));
        tools.push(Box::new(crate::todo::TodoWrite));
        tools.push(Box::new(crate::webfetch::WebFetch { transport: egress.for_organisations() }));
        Self::of(tools).0
    }

    /// Makes a set, and says which tools are not in it and why: the first of a name wins, a name has letters, digits, `_` and
    /// `-`, and there are bounds on the number of tools and on the size of their definitions.
    pub fn of(tools: impl IntoIterator<Item = Box<dyn Tool>>) -> (Self, Vec<String>) {
        let (mut set, mut refused, mut bytes) = (BTreeMap::new(), Vec::new(), 0);
        for tool in tools {
            let offered = match SetEntry::of(tool) {
                Ok(offered) => offered,
                Err(why) => {
                    refused.push(why);
                    continue;
                }
            };
            let (name, more) = (offered.definition.name.clone(), offered.bytes());
            let why = if set.contains_key(&name) {
                "there is another tool of that name"
            } else if set.len() == MAX_TOOLS {
                "there are 128 tools already"
            } else if bytes + more > MAX_BYTES {
                "the definitions of all tools would have more than 256 KiB"
            } else {
                bytes += more;
                set.insert(name, offered);
                continue;
            };
            refused.push(format!("the tool {name} is not offered: {why}"));
        }
        (Self { tools: Arc::new(set) }, refused)
    }

    /// Returns the definitions for providers, always in the same order: by name.
    pub fn definitions(&self) -> impl Iterator<Item = &ToolDefinition> {
        self.tools.values().map(|offered| &offered.definition)
    }

    /// Returns what a takeover may do with a started call. An unknown tool has no body, so it is *pure*.
    pub fn class(&self, name: &str) -> ToolClass {
        self.tools.get(name).map_or(ToolClass::Pure, |offered| offered.class)
    }

    /// Runs a call to its outcome. It never fails: errors become outcomes that the model sees.
    ///
    /// If the future is dropped, commands die. A file change that had begun may still happen, in full.
    pub async fn run(&self, call: &ToolCall, context: &ToolContext) -> ToolOutcome {
        let Some(offered) = self.find_meant(call) else {
            let known = self.tools.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let message = format!("there is no tool {}; the tools are {known}", call.name);
            return Stopped::because(message).into_outcome(&call.name);
        };
        if context.cancel.is_cancelled() {
            return Stopped::Interrupted.into_outcome(&call.name);
        }
        match offered.tool.run(&offered.named(call), context).await {
            Ok(outcome) => offered.checked(outcome),
            Err(stopped) => stopped.into_outcome(&offered.definition.name),
        }
    }

    /// Returns the tool that a call means.
    fn find_meant(&self, call: &ToolCall) -> Option<&SetEntry> {
        let known = self.tools.keys().map(String::as_str);
        self.tools.get(meant_tool(&call.name, &call.arguments, &known)?)
    }

    /// Looks for the effect of a call that an earlier owner had started.
    pub async fn probe(&self, call: &ToolCall, context: &ToolContext) -> Probe {
        match self.find_meant(call) {
            Some(offered) if offered.class == ToolClass::Probe => {
                match offered.tool.probe(&offered.named(call), context).await {
                    Probe::Done(outcome) => Probe::Done(offered.checked(outcome)),
                    unsure @ (Probe::NotDone | Probe::Unclear) => unsure,
                }
            }
            Some(_) => Probe::Unclear,
            None => Probe::NotDone,
        }
    }
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(fits)
}

fn standard(sandbox: Arc<dyn Sandbox>, locks: &Arc<FileLocks>) -> Vec<Box<dyn Tool>> {
    vec![
        Box::new(crate::edit::Edit { locks: locks.clone() }),
        Box::new(crate::glob::Glob),
        Box::new(crate::grep::Grep),
        Box::new(crate::read::Read),
        Box::new(crate::shell::Shell { sandbox }),
        Box::new(crate::skill::Skill),
        Box::new(crate::write::Write { locks: locks.clone() }),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Named(String, usize);

    #[async_trait]
    impl Tool for Named {
        fn definition(&self) -> ToolDefinition {
            let (name, description) = (self.0.clone(), "x".repeat(self.1));
            let (input_schema, result_schema) = (json!({"type": "object"}), None);
            ToolDefinition { name, description, input_schema, result_schema }
        }

        fn class(&self) -> ToolClass {
            ToolClass::Unsafe
        }

        async fn run(&self, _: &ToolCall, _: &ToolContext) -> Result<ToolOutcome, Stopped> {
            Err(Stopped::because("it does nothing"))
        }
    }

    fn made(tools: impl IntoIterator<Item = (String, usize)>) -> (ToolSet, Vec<String>) {
        let tools = tools.into_iter();
        ToolSet::of(tools.map(|(name, size)| Box::new(Named(name, size)) as Box<dyn Tool>))
    }

    fn names(set: &ToolSet) -> Vec<&str> {
        set.definitions().map(|definition| definition.name.as_str()).collect()
    }

    #[test]
    fn a_set_is_ordered_and_the_first_of_a_name_wins() {
        let tools = [("b", 1), ("a", 1), ("b", 2), ("a b", 1), ("", 1)];
        let (set, refused) = made(tools.map(|(name, size)| (name.to_owned(), size)));
        assert_eq!(names(&set), ["a", "b"]);
        assert_eq!(set.definitions().nth(1).map(|tool| tool.description.len()), Some(1));
        assert_eq!(refused.len(), 3);
        assert_eq!(refused[0], "the tool b is not offered: there is another tool of that name");
    }

    #[test]
    fn a_result_of_another_form_is_not_passed_on() {
        let offered = |result_schema: Option<serde_json::Value>| {
            let mut offered = SetEntry::of(Box::new(Named("a".into(), 1))).expect("a tool");
            offered.results = result_schema
                .map(|schema| jsonschema::draft202012::new(&schema).expect("a schema"));
            offered
        };
        let counts = json!({"type": "object", "required": ["count"], "properties": {"count": {"type": "integer"}}});
        let outcome = |value| ToolOutcome::completed("t".into(), "text".into(), Some(value));
        let right = offered(Some(counts.clone())).checked(outcome(json!({"count": 1})));
        assert_eq!(
            (right.kind, right.structured),
            (ToolOutcomeKind::Completed, Some(json!({"count": 1})))
        );
        for (schema, value) in [(Some(counts), json!({"count": "1"})), (None, json!({}))] {
            let wrong = offered(schema).checked(outcome(value));
            assert_eq!((wrong.kind, wrong.structured), (ToolOutcomeKind::Failed, None));
            let Text::Whole(text) = wrong.text else { panic!("a short text") };
            assert!(text.contains("does not have the form"), "{text}");
        }
    }

    #[test]
    fn a_set_has_bounds() {
        let (set, refused) = made((0..200).map(|number| (format!("t{number}"), 1)));
        assert_eq!((names(&set).len(), refused.len()), (MAX_TOOLS, 72));
        let (set, refused) = made((0..9).map(|number| (format!("t{number}"), 64 * 1024)));
        assert_eq!((names(&set).len(), refused.len()), (3, 6), "{refused:?}");
    }
}
