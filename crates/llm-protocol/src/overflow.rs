//! Recognises refusals because a request is longer than its model takes, in the words of any server.
//!
//! Servers agree neither on codes nor on words nor on a language. Some phrases mean nothing else. Other sentences say
//! three things: what was sent (an input, a prompt, messages), in what it is measured (tokens, a length, bytes), and
//! that there was too much of it. Sentences about rates, about the allowed answer, about pictures and about small
//! fields have the same words, so those are sorted out first.

/// Returns whether a refusal says that the request is too long for its model. `codes` and `message` are in lower case;
/// `status` is 0 if it is not known.
pub(crate) fn is_overflow(status: u16, codes: &[String], message: &str) -> bool {
    let has_code =
        |known: &[&str]| codes.iter().any(|code| known.iter().any(|known| code.contains(known)));
    if has_code(CODES) || codes.iter().any(|code| NUMBERS.contains(&code.as_str())) {
        return true;
    }
    // An overflow as a bare 400 is Cerebras's.
    may_say_so(status) && (says_so(message) || (status == 400 && message.is_empty()))
}

/// Returns whether a refusal is about a picture, a document or a recording: a shorter conversation does not help.
pub(crate) fn is_about_media(message: &str) -> bool {
    has_any(message, MEDIA)
}

/// Returns whether a body with this status may report an overflow. Local servers answer 500 where hosted ones answer
/// 400.
fn may_say_so(status: u16) -> bool {
    matches!(status, 0 | 400 | 413 | 422 | 500)
}

fn says_so(message: &str) -> bool {
    if has_any(message, PHRASES) {
        return true;
    }
    if has_any(message, RATES) || has_any(message, FIELDS) || is_about_media(message) {
        return false;
    }
    if has_any(message, LARGE) {
        return true;
    }
    let mut rest = message.to_owned();
    for word in PREFIXES {
        rest = rest.replace(word, " ");
    }
    let is_about_answer = has_any(&rest, ANSWERS);
    for word in ANSWERS {
        rest = rest.replace(word, " ");
    }
    let is_about_input = has_any(&rest, INPUTS) || (!is_about_answer && has_any(&rest, REQUESTS));
    is_about_input
        && has_any(&rest, MEASURES)
        && has_any(&rest, EXCESSES)
        && largest_number(&rest).is_none_or(|most| most >= LEAST_LIMIT)
}

/// No model takes less than this, in any measure. Limits of names and counts of pieces are smaller.
const LEAST_LIMIT: u64 = 1_000;

fn has_any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// Returns the largest number in a text, whose groups of digits may have commas.
fn largest_number(text: &str) -> Option<u64> {
    let text = text.replace(',', "");
    let runs = text.split(|c: char| !c.is_ascii_digit()).filter(|run| !run.is_empty());
    runs.map(|run| run.parse().unwrap_or(u64::MAX)).max()
}

const CODES: &[&str] = &[
    "context_length_exceeded",
    "context_window_exceeded",
    "contextwindowexceeded",
    "context_limit_exceeded",
    "context_too_long",
    "exceed_context_size",
    "max_context_length",
    "prompt_too_long",
    "input_too_long",
    "message_too_long",
    "tokens_too_long",
    "input_length_exceeded",
    "request_too_large",
    "request_entity_too_large",
    "payload_too_large",
    // GitHub Copilot and GitHub Models.
    "model_max_prompt_tokens_exceeded",
    "tokens_limit_reached",
];

/// Codes without words, of Z.ai, Baidu's Qianfan and iFlytek.
const NUMBERS: &[&str] = &["1261", "336103", "10907"];

/// Phrases that mean nothing else.
const PHRASES: &[&str] = &[
    "maximum context length",
    "context window",
    "contextwindowexceeded",
    "context length",
    "context size",
    "context limit",
    "maximum model length",
    "prompt is too long",
    "input is too long",
    "inputs are too long",
    "input token count",
    "maximum prompt length",
    "maximum input length",
    "reduce the length of the messages",
    "reduce the length of the input",
    "reduce the length of the prompt",
    // Amazon Nova on Bedrock, as a 400 or in the stream.
    "input tokens exceeded",
    // GitHub Copilot: `prompt token count of 140000 exceeds the limit of 128000`.
    "prompt token count",
    // Moonshot's Kimi: `Your request exceeded model token limit: 262144`.
    "exceeded model token limit",
    // Z.ai has two phrases.
    "more than max tokens allowed",
    "prompt exceeds max length",
    // Ollama.
    "prompt too long",
    // Mistral: `Prompt contains 40000 tokens … too large for model with 32768 maximum context length`.
    "too large for model with",
    // Alibaba's Qwen: `Range of input length should be [1, 30720]`.
    "range of input length",
    // Hugging Face's TGI and Together.
    "`inputs` must have less than",
    // vLLM, when nothing is left for the answer.
    "max_tokens must be at least 1, got -",
    // Volcengine's Doubao.
    "exceed max message tokens",
    // Baidu.
    "max input characters",
    "max input tokens",
    "length of current question",
    // OpenAI, about the list of messages.
    "'messages': array too long",
    "'input': array too long",
    "超过模型最大上下文",
    "最大上下文长度",
    "上下文长度",
    "コンテキスト長",
    "컨텍스트 길이",
];

/// Words of a size without a measure.
const LARGE: &[&str] = &[
    "request too large",
    "request is too large",
    "request body too large",
    "request body is too large",
    "request entity too large",
    "request exceeds the maximum size",
    "payload too large",
    "payload is too large",
    "content too large",
    "prompt too large",
    "prompt is too large",
    "input too large",
    "input is too large",
    "message too long",
    "message is too long",
    "messages are too long",
    "message too large",
    "conversation is too long",
    "请求体过大",
    "请求过大",
];

/// The words for a conversation.
const INPUTS: &[&str] = &[
    "input",
    "prompt",
    "message",
    "context",
    "conversation",
    "history",
    "question",
    "sequence",
    "payload",
    "提示",
    "输入",
    "輸入",
    "上下文",
    "消息",
    "对话",
    "對話",
    "历史",
    "问题",
    "文本",
    "入力",
    "プロンプト",
    "コンテキスト",
    "メッセージ",
    "会話",
    "입력",
    "프롬프트",
    "컨텍스트",
    "메시지",
    "대화",
    "eingabe",
    "kontext",
    "nachricht",
    "entrée",
    "contexte",
    "invite",
    "entrada",
    "contexto",
    "mensaje",
    "mensagem",
    "контекст",
    "запрос",
    "ввод",
    "промпт",
    "сообщени",
    "contesto",
    "richiesta",
];

/// Words that may mean a conversation, or its options.
const REQUESTS: &[&str] = &[
    "request",
    "body",
    "you requested",
    "requested tokens",
    "请求",
    "請求",
    "内容",
    "リクエスト",
    "요청",
    "anfrage",
    "requête",
    "solicitud",
    "solicitação",
];

/// In what it is measured.
const MEASURES: &[&str] = &[
    "token",
    "length",
    "byte",
    "character",
    "size",
    " long",
    "长",
    "長",
    "字",
    "大小",
    "令牌",
    "トークン",
    "文字",
    "バイト",
    "サイズ",
    "길이",
    "길",
    "깁",
    "토큰",
    "바이트",
    "läng",
    "lang",
    "zeichen",
    "longueur",
    "trop long",
    "taille",
    "longitud",
    "larg",
    "tamaño",
    "comprimento",
    "tamanho",
    "длин",
    "токен",
    "размер",
    "lung",
];

/// That there is too much of it.
const EXCESSES: &[&str] = &[
    "exceed",
    "too long",
    "too large",
    "too many",
    "too big",
    "longer than",
    "larger than",
    "greater than",
    "more than",
    "over the limit",
    "over the maximum",
    "above the",
    "at most",
    "must be <=",
    "must be less",
    "should be less",
    "must have less",
    "must be within",
    "must be between",
    "must not be longer",
    "should be [",
    "must be in [",
    "range of",
    "reduce",
    "shorten",
    "limit is",
    "limit of",
    "surpass",
    " > ",
    "maximum of",
    "maximum allowed",
    "max allowed",
    "不能超过",
    "超过",
    "超過",
    "超出",
    "超长",
    "超長",
    "过长",
    "過長",
    "太长",
    "太長",
    "过大",
    "上限",
    "越界",
    "范围应",
    "超え",
    "長すぎ",
    "大きすぎ",
    "초과",
    "너무",
    "zu lang",
    "zu groß",
    "überschr",
    "übersteig",
    "trop long",
    "trop grand",
    "dépass",
    "excèd",
    "demasiado",
    "excede",
    "supera",
    "muito long",
    "ultrapassa",
    "превыша",
    "превыси",
    "слишком",
    "troppo",
];

/// Rates, accounts and times, whose limits a shorter conversation does not mend.
const RATES: &[&str] = &[
    "per minute",
    "per min",
    "per second",
    "per hour",
    "per day",
    "/min",
    "/day",
    "(tpm",
    "tpm)",
    "tpm ",
    "rpm",
    "rate limit",
    "rate-limit",
    "ratelimit",
    "rate_limit",
    "too many requests",
    "too many concurrent",
    "quota",
    "concurren",
    "daily",
    "monthly",
    "balance",
    "billing",
    "credit",
    "spend",
    "timed out",
    "timeout",
    "deadline",
    "please wait",
    "throttl",
    "每分钟",
    "每秒",
    "每天",
    "每日",
    "频率",
    "限流",
    "速率",
    "并发",
    "配额",
    "额度",
    "限额",
    "余额",
    "用量",
    "次数",
    "レート",
    "毎分",
    "分あたり",
    "1 分",
    "1分",
    "分당",
    "분당",
    "속도",
    "할당량",
];

/// Fields and headers with small limits of their own.
const FIELDS: &[&str] = &[
    "description",
    "schema",
    "stop sequence",
    "`stop`",
    "'stop'",
    "temperature",
    "top_p",
    "top_k",
    "penalty",
    "logprobs",
    "logit_bias",
    "metadata",
    "cache_control",
    "header",
    "cookie",
    "url",
    "uri ",
    ".name",
    ".id'",
    "tool_call_id",
    "safety_identifier",
    "prompt_cache_key",
    "'user'",
    "'tools'",
    "function name",
    "tool name",
    "api key",
    "api_key",
    "workflow",
    "embedding dimension",
];

/// Pictures, documents and recordings.
const MEDIA: &[&str] = &[
    "image",
    "picture",
    "pixel",
    "audio",
    "video",
    "pdf",
    "file size",
    "file is too",
    "file too",
    "图片",
    "图像",
    "音频",
    "视频",
    "文件",
    "画像",
    "動画",
    "이미지",
    "파일",
    "bildgröße",
];

/// The allowed answer, under all its names. Longer ones stand first.
const ANSWERS: &[&str] = &[
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
    "max_tokens",
    "maxoutputtokens",
    "maxtokens",
    "budget_tokens",
    "thinking_budget",
    "max_length",
    "output tokens",
    "output token",
    "completion tokens",
    "completion token",
    "new tokens",
    "输出长度",
    "输出token",
    "输出 token",
    "出力トークン",
    "출력 토큰",
];

/// Beginnings of refusals of any kind, which say nothing about what was too much.
const PREFIXES: &[&str] = &[
    "invalid_request_error",
    "invalid_request",
    "invalid request",
    "bad request",
    "input validation error",
    "invalid input",
    "input should be",
    "request_id",
    "requestid",
    "request id",
    "error message",
    "\"message\"",
    "internalerror.algo",
    "无效请求",
    "请求参数",
    "请求无效",
];

#[cfg(test)]
#[path = "overflow_tests.rs"]
mod tests;
