//! The names of spans and attributes: the semantic conventions of OpenTelemetry for generative AI, as of version 1.37, and our own
//! beginning with `oc.`. No other file has such a name; a test holds that.

/// The version of the conventions.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.37.0";

/// The operation of a span.
pub const OPERATION: &str = "gen_ai.operation.name";
/// The conversation: our session.
pub const CONVERSATION: &str = "gen_ai.conversation.id";
/// The agent of a turn.
pub const AGENT: &str = "gen_ai.agent.name";
/// The provider of a model.
pub const PROVIDER: &str = "gen_ai.provider.name";
/// The model that was asked for.
pub const MODEL: &str = "gen_ai.request.model";
/// Tokens of the request.
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Tokens of the answer.
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// The name of a tool.
pub const TOOL: &str = "gen_ai.tool.name";
/// The id of a call.
pub const CALL: &str = "gen_ai.tool.call.id";
/// The arguments of a call. Only if the operator wants them.
pub const CALL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
/// The result of a call. Only if the operator wants it.
pub const CALL_RESULT: &str = "gen_ai.tool.call.result";
/// A word for a failure.
pub const ERROR: &str = "error.type";

/// The claim of a drain.
pub const CLAIM: &str = "oc.claim";
/// Our id of a turn, for `opencode-cloud explain`.
pub const TURN: &str = "oc.turn";
/// Our id of an attempt.
pub const ATTEMPT: &str = "oc.attempt";
/// The takeovers in a row that led to this drain.
pub const RECOVERIES: &str = "oc.recoveries";
/// The text of a prompt. Only if the operator wants it.
pub const PROMPT: &str = "oc.prompt";

/// The operation of a drain.
pub const INVOKE_AGENT: &str = "invoke_agent";
/// The operation of an attempt.
pub const CHAT: &str = "chat";
/// The operation of a tool call.
pub const EXECUTE_TOOL: &str = "execute_tool";
/// Our name of an admission.
pub const ADMIT: &str = "admit";
/// Our name of a turn.
pub const TURN_SPAN: &str = "turn";
