//! Neutral request in, request body out. Deterministic: the same request gives the same bytes in any build.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::dialect::Dialect;
use crate::gemini::contents::contents;
use crate::gemini::schema::{Schema, parameters};
use crate::gemini::{ID, RAW_NAMES, STATE_KEY};
use crate::json::Sorted;
use crate::options::{BodyFields, OptionTable};
use crate::protocol::body::{Body, Source};
use crate::request::{ControlNames, LlmRequest, SystemPart, ToolChoice};

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
        (RETRIEVAL, RETRIEVAL),
        ("safetySettings", "safetySettings"),
        ("serviceTier", "serviceTier"),
        ("thinkingConfig", "generationConfig.thinkingConfig"),
    ],
    merged: &[GENERATION],
    fixed: &["contents", "systemInstruction", "tools", "toolConfig"],
};

const GENERATION: &str = "generationConfig";
/// An option and a field of `toolConfig`, not of the body: the user's location, for Google's maps and search.
const RETRIEVAL: &str = "retrievalConfig";

/// Writes the body of a streamed answer. The path names the model.
///
/// - The instructions before the conversation are one text, joined by line feeds; those in the middle are
///   wrapped in user content. Neighbouring contents of one role become one.
/// - Thoughts, texts and calls go back signed to the model that made them; another model's thoughts become
///   text. Code that the provider ran goes back verbatim; another provider's hosted tool becomes a call and
///   its result.
/// - Arguments that are not a JSON object are sent as `{"invalid_json": "…"}`. A failed result is an `error`.
/// - Schemas are reduced to the subset that Gemini accepts.
/// - `providerOptions["google"]` uses the AI SDK's names (`thinkingConfig`, `safetySettings`, …). Fields of
///   `providerOptions["gemini"]` are added to the body, sorted, and its `generationConfig` replaces controls
///   of the same key (null removes them). Its `tools` come after ours.
pub(super) fn write(source: Source<'_>, body: &mut Body<'_>) -> serde_json::Result<()> {
    let Source { request, dialect, owner, version } = source;
    body.entry("contents", &contents(request, owner, version <= RAW_NAMES))?;
    let system = request.system.iter().map(|SystemPart::Text { text }| text.as_str());
    let text = system.collect::<Vec<_>>().join("\n");
    if !text.is_empty() {
        body.entry("systemInstruction", &Instruction { parts: [Text { text }] })?;
    }
    let tools = OPTIONS.offer(request, Declarations::of(request));
    if !tools.is_empty() {
        body.entry("tools", &tools)?;
    }
    let mut fields = OPTIONS.fields(request, dialect);
    let retrieval = fields.take(RETRIEVAL);
    let choice = choice(&request.tool_choice).filter(|_| !request.tools.is_empty());
    if choice.is_some() || retrieval.is_some() {
        let config = ToolConfig { function_calling_config: choice, retrieval_config: retrieval };
        body.entry("toolConfig", &config)?;
    }
    let generation = generation(request, &mut fields, dialect);
    if !generation.is_empty() {
        body.entry(GENERATION, &Sorted(&Value::Object(generation)))?;
    }
    body.tail(&[], &fields)
}

#[derive(Serialize)]
struct Instruction {
    parts: [Text; 1],
}

#[derive(Serialize)]
struct Text {
    text: String,
}

/// One tool that declares all functions.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declarations<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Schema>,
}

impl<'a> Declarations<'a> {
    fn of(request: &'a LlmRequest) -> Option<Self> {
        let declared = request.tools.iter().map(|tool| Declaration {
            name: &tool.name,
            description: &tool.description,
            parameters: parameters(&tool.input_schema),
        });
        let function_declarations: Vec<_> = declared.collect();
        (!function_declarations.is_empty()).then_some(Self { function_declarations })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    function_calling_config: Option<Choice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retrieval_config: Option<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Choice<'a> {
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_function_names: Option<[&'a str; 1]>,
}

/// Returns the function-calling mode. `AUTO` is the default and is not sent.
fn choice(choice: &ToolChoice) -> Option<Choice<'_>> {
    let (mode, allowed_function_names) = match choice {
        ToolChoice::Auto => return None,
        ToolChoice::None => ("NONE", None),
        ToolChoice::Required => ("ANY", None),
        ToolChoice::Tool(name) => ("ANY", Some([name.as_str()])),
    };
    Some(Choice { mode, allowed_function_names })
}

/// Returns the generation config: the controls, overridden by the options. OpenCode puts `thinkingConfig`
/// beside it rather than into it, so that is accepted too.
fn generation(
    request: &LlmRequest,
    fields: &mut BodyFields,
    dialect: &Dialect,
) -> Map<String, Value> {
    let controls = request.generation.named(&ControlNames {
        max_tokens: dialect.max_tokens_field.as_deref().unwrap_or("maxOutputTokens"),
        temperature: "temperature",
        top_p: "topP",
        top_k: Some("topK"),
        seed: Some("seed"),
        stop: Some("stopSequences"),
    });
    let controls = controls.into_iter().map(|(key, value)| (key.to_owned(), value));
    let mut config: Map<String, Value> = controls.collect();
    if let Some(Value::Object(options)) = fields.take(GENERATION) {
        config.extend(options);
    }
    if let Some(thinking) = fields.take("thinkingConfig") {
        config.insert("thinkingConfig".to_owned(), thinking);
    }
    let raw = request.provider_options.get(ID).and_then(|options| options.get(GENERATION));
    let removed = |key: &str| raw.and_then(|raw| raw.get(key)).is_some_and(Value::is_null);
    // A dialect may use another protocol's name for a control: `top_p`.
    let omitted =
        |key: &str| dialect.omit.iter().any(|name| name.replace('_', "").eq_ignore_ascii_case(key));
    config.retain(|key, value| !value.is_null() && !removed(key) && !omitted(key));
    config
}
