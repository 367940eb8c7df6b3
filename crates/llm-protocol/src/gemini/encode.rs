//! Neutral request in, request body out. Deterministic: the same request gives the same bytes in any build.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::dialect::Dialect;
use crate::gemini::contents::contents;
use crate::gemini::schema::{Schema, parameters};
use crate::gemini::{ID, STATE_KEY};
use crate::json::{Sorted, control_number};
use crate::options::{BodyFields, BodyMap, OptionTable};
use crate::request::{LlmRequest, SystemPart, ToolChoice};
use crate::state::StateOwner;

const OPTIONS: OptionTable = OptionTable {
    id: ID,
    families: &[STATE_KEY],
    names: &[
        ("audioTimestamp", "generationConfig.audioTimestamp"),
        ("cachedContent", "cachedContent"),
        ("imageConfig", "generationConfig.imageConfig"),
        ("labels", "labels"),
        ("mediaResolution", "generationConfig.mediaResolution"),
        ("responseModalities", "generationConfig.responseModalities"),
        ("safetySettings", "safetySettings"),
        ("serviceTier", "serviceTier"),
        ("thinkingConfig", "generationConfig.thinkingConfig"),
    ],
    merged: &[GENERATION],
    fixed: &["contents", "systemInstruction", "tools", "toolConfig"],
};

const GENERATION: &str = "generationConfig";

/// Writes the body of a streamed answer, as the protocol's owner has it ([`crate::Protocol::encode_for`] for others).
/// The model is in the path.
///
/// - The instructions before the conversation are one text, joined by line feeds; those in the middle are wrapped in
///   a user's content. Contents of one role that follow each other are one.
/// - Thoughts, texts and calls go back signed to the model that made them; thoughts of another are text. Code that the
///   provider ran goes back verbatim; a hosted tool of another is a call and its result.
/// - Arguments that are no JSON object are sent as `{"invalid_json": "…"}`. A failed result is an `error`.
/// - Schemas are reduced to what Gemini takes.
/// - `providerOptions["google"]` is read in the names of the AI SDK (`thinkingConfig`, `safetySettings`, …); fields of
///   `providerOptions["gemini"]` are added to the body, sorted, and its `generationConfig` replaces controls of the same
///   key (null removes them). Its `tools` come after ours.
#[must_use]
pub fn encode(request: &LlmRequest) -> Vec<u8> {
    encode_for(request, &Dialect::default())
}

pub(crate) fn encode_for(request: &LlmRequest, dialect: &Dialect) -> Vec<u8> {
    serde_json::to_vec(&Body { request, dialect })
        .expect("keys are strings and the writer is memory")
}

struct Body<'a> {
    request: &'a LlmRequest,
    dialect: &'a Dialect,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { request, dialect } = *self;
        let key = dialect.state_key.as_deref().unwrap_or(STATE_KEY);
        let owner = StateOwner::new(key, &request.model);
        let mut body = BodyMap::new(serializer.serialize_map(None)?, dialect);
        body.entry("contents", &contents(request, &owner))?;
        let system = request.system.iter().map(|SystemPart::Text { text }| text.as_str());
        let text = system.collect::<Vec<_>>().join("\n");
        if !text.is_empty() {
            body.entry("systemInstruction", &Instruction { parts: [Text { text }] })?;
        }
        let tools = tools(request);
        if !tools.is_empty() {
            body.entry("tools", &tools)?;
        }
        if !request.tools.is_empty()
            && let Some(function_calling_config) = choice(&request.tool_choice)
        {
            body.entry("toolConfig", &ToolConfig { function_calling_config })?;
        }
        let mut fields = OPTIONS.fields(request, dialect);
        let generation = generation(request, &mut fields, dialect);
        if !generation.is_empty() {
            body.entry(GENERATION, &Sorted(&Value::Object(generation)))?;
        }
        body.tail(&[], &fields)?;
        body.end()
    }
}

#[derive(Serialize)]
struct Instruction {
    parts: [Text; 1],
}

#[derive(Serialize)]
struct Text {
    text: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Tool<'a> {
    Ours {
        #[serde(rename = "functionDeclarations")]
        declarations: Vec<Declaration<'a>>,
    },
    /// One that the provider runs, as the options have it.
    Hosted(Sorted<'a>),
}

#[derive(Serialize)]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Schema>,
}

fn tools(request: &LlmRequest) -> Vec<Tool<'_>> {
    let ours = request.tools.iter().map(|tool| Declaration {
        name: &tool.name,
        description: &tool.description,
        parameters: parameters(&tool.input_schema),
    });
    let declarations: Vec<_> = ours.collect();
    let ours = (!declarations.is_empty()).then_some(Tool::Ours { declarations });
    let hosted = OPTIONS.hosted_tools(request).iter().map(|tool| Tool::Hosted(Sorted(tool)));
    ours.into_iter().chain(hosted).collect()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolConfig<'a> {
    function_calling_config: Choice<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Choice<'a> {
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_function_names: Option<[&'a str; 1]>,
}

/// `AUTO` is the default and not sent.
fn choice(choice: &ToolChoice) -> Option<Choice<'_>> {
    let (mode, allowed_function_names) = match choice {
        ToolChoice::Auto => return None,
        ToolChoice::None => ("NONE", None),
        ToolChoice::Required => ("ANY", None),
        ToolChoice::Tool(name) => ("ANY", Some([name.as_str()])),
    };
    Some(Choice { mode, allowed_function_names })
}

/// The controls, with what the options say of them. An option that belongs here is also taken from beside it, where
/// OpenCode has `thinkingConfig`.
fn generation(
    request: &LlmRequest,
    fields: &mut BodyFields,
    dialect: &Dialect,
) -> Map<String, Value> {
    let generation = &request.generation;
    let max_tokens = dialect.max_tokens_field.as_deref().unwrap_or("maxOutputTokens");
    let stop = (!generation.stop.is_empty()).then(|| Value::from(generation.stop.clone()));
    let all = [
        (max_tokens, generation.max_tokens.map(Value::from)),
        ("temperature", generation.temperature.map(control_number)),
        ("topP", generation.top_p.map(control_number)),
        ("topK", generation.top_k.map(Value::from)),
        ("stopSequences", stop),
        ("seed", generation.seed.map(Value::from)),
    ];
    let controls = all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let mut config: Map<String, Value> = controls.collect();
    if let Some(Value::Object(options)) = fields.take(GENERATION) {
        config.extend(options);
    }
    if let Some(thinking) = fields.take("thinkingConfig") {
        config.insert("thinkingConfig".to_owned(), thinking);
    }
    let raw = request.provider_options.get(ID).and_then(|options| options.get(GENERATION));
    let removed = |key: &str| raw.and_then(|raw| raw.get(key)).is_some_and(Value::is_null);
    // A dialect may know a control by another protocol's name: `top_p`.
    let omitted =
        |key: &str| dialect.omit.iter().any(|name| name.replace('_', "").eq_ignore_ascii_case(key));
    config.retain(|key, value| !value.is_null() && !removed(key) && !omitted(key));
    config
}
