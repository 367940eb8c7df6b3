use crate::{ErrorReason, classify, classify_in_stream};
use serde_json::{Value, json};

fn body(message: &str) -> Value {
    json!({ "error": { "message": message, "type": "invalid_request_error" } })
}

// Finding reports 6: a conversation that was refused in words unknown to us could not go on, nor be compacted.
#[test]
fn refusals_of_too_much_are_known_in_any_words() {
    let said = [
        // Moonshot, in bytes.
        "Invalid request: total message size 4200345 exceeds limit 4194304",
        "total message size exceeds the limit: 2,097,152 bytes",
        // Qwen, plain and through DashScope's own wrapping.
        "Range of input length should be [1, 30720]",
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
        "Total message token length exceed model limit (10000 tokens).",
        // TGI and Together.
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 100 `max_new_tokens`",
        "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000",
        // vLLM.
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "max_tokens must be at least 1, got -904.",
        "You passed 40001 input tokens and requested 100 output tokens. However, the limit is 32768.",
        // SGLang, llama.cpp, LM Studio, LiteLLM.
        "Input length (5000 tokens) exceeds the maximum allowed length (4096 tokens). Use a shorter input.",
        "Requested tokens (5000) exceed context window of 4096",
        "input is too large to process. increase the physical batch size",
        "Trying to keep the first 5000 tokens when the context overflows. However, the model is loaded with context length of only 4096 tokens",
        "litellm.ContextWindowExceededError: OpenAIException - no",
        // Cohere, Gemini, OpenAI, Azure.
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000.",
        "Request payload size exceeds the limit: 20971520 bytes.",
        "Invalid 'input[3].content': string too long. Expected a string with maximum length 10485760, but got a string with length 11111111 instead.",
        "Invalid 'messages': array too long. Expected an array with maximum length 2048, but got an array with length 2049 instead.",
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens.",
        // SiliconFlow, Doubao, MiniMax, Baidu, watsonx.
        "length of prompt_tokens (40000) must be less than max_seq_len (32768).",
        "Total tokens of image and text exceed max message tokens.",
        "Input length 300000 exceeds the maximum length 131072",
        "invalid params, context window exceeds limit (2013)",
        "the max input characters is 24000",
        "the number of input tokens 5000 cannot exceed the total tokens limit 4096 for this model",
        // Other languages.
        "Prompt 超长",
        "输入内容过长，请缩短后重试",
        "输入长度超过限制，最大 32768 个 token",
        "对话历史 token 数超出上限",
        "上下文长度超出模型限制",
        "消息总长度 40000 字符超过最大值 32000",
        "入力トークン数が上限を超えています (最大 32768)",
        "プロンプトが長すぎます",
        "입력 토큰 수가 최대 길이 32768을 초과했습니다",
        "프롬프트가 너무 깁니다",
        "Die Eingabe ist zu lang: 40000 Token, erlaubt sind 32768",
        "La longueur de l'entrée dépasse la limite de 32768 jetons",
        "La entrada excede el límite de 32768 tokens",
        "Длина контекста превышает 32768 токенов",
    ];
    for message in said {
        for status in [400, 413, 422, 500] {
            let error = classify(status, None, &body(message).to_string());
            assert_eq!(error.reason, ErrorReason::ContextOverflow, "{status} {message}");
        }
        let error = classify_in_stream(&body(message)["error"]);
        assert_eq!(error.reason, ErrorReason::ContextOverflow, "in a stream: {message}");
    }
    let bodies = [
        (413, "<html><h1>413 Request Entity Too Large</h1></html>".to_owned()),
        (413, String::new()),
        (400, json!({ "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 8000 `inputs` tokens and 1000 `max_new_tokens`", "error_type": "validation" }).to_string()),
        (400, json!({ "error": { "code": "1261", "message": "no" } }).to_string()),
        (400, json!({ "error_code": 336_103, "error_msg": "no" }).to_string()),
        (200, json!({ "error_code": 336_103, "error_msg": "prompt tokens too long" }).to_string()),
        (400, json!({ "code": "InvalidParameter", "message": "Range of input length should be [1, 6000]", "request_id": "r" }).to_string()),
        (400, json!({ "object": "error", "message": "This model's maximum context length is 4096 tokens.", "code": 400 }).to_string()),
        (400, json!({ "base_resp": { "status_code": 2013, "status_msg": "invalid params, context window exceeds limit" } }).to_string()),
        (413, json!({ "error": { "code": "tokens_limit_reached", "message": "Request body too large for gpt-4o model. Max size: 8000 tokens." } }).to_string()),
    ];
    let own =
        json!({ "code": "1210", "message": "tokens in request more than max tokens allowed" });
    assert_eq!(classify_in_stream(&own).reason, ErrorReason::ContextOverflow);
    for (status, body) in bodies {
        let error = classify(status, None, &body);
        assert_eq!(error.reason, ErrorReason::ContextOverflow, "{status} {body}");
    }
}

#[test]
fn refusals_of_other_things_are_no_overflows() {
    let said = [
        "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-x",
        "max_tokens is too large: 100000. This model supports at most 4096 completion tokens.",
        "Range of max_tokens should be [1, 8192]",
        "Invalid request: max_tokens 9000 is greater than the maximum of 8192 tokens",
        "Input validation error: `max_new_tokens` must be <= 4096. Given: 5000",
        "max_completion_tokens 超出范围，应在 [1, 8192]",
        "`max_tokens` must be greater than `thinking.budget_tokens`.",
        "thinking.budget_tokens: Input should be greater than or equal to 1024",
        "temperature: Input should be less than or equal to 1",
        "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 5316852 bytes > 5242880 bytes",
        "messages.3.content.0: At least one of the image dimensions exceed max allowed size: 8000 pixels",
        "图片大小超过限制: 10485760 字节",
        "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 45 instead.",
        "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024, but got a string with length 1500 instead.",
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 129 instead.",
        "stop sequences: too many, at most 4 of 100 characters each in a request",
        "messages: at least one message is required",
        "Unexpected token < in the request body at position 40960",
        "Request Header Or Cookie Too Large",
        "The request timed out: it exceeded 600000 ms before the first token",
    ];
    for message in said {
        let error = classify(400, None, &body(message).to_string());
        assert_eq!(error.reason, ErrorReason::InvalidRequest, "{message}");
    }
    let rates = [
        "Rate limit reached for input tokens per minute: limit 40000",
        "This request would exceed your organization's rate limit of 40,000 input tokens per minute",
        "Number of request tokens has exceeded your daily limit of 1000000",
        "您的请求 token 数超过每分钟上限 100000",
        "Too many tokens, please wait before trying again.",
    ];
    for message in rates {
        let reason = classify(429, None, &body(message).to_string()).reason;
        assert_eq!(reason, ErrorReason::RateLimit { retry_after_ms: None }, "{message}");
        let bare = classify_in_stream(&json!({ "message": message })).reason;
        assert_ne!(bare, ErrorReason::ContextOverflow, "{message}");
    }
    let picture = classify(413, None, &body("image exceeds 5 MB").to_string()).reason;
    assert_eq!(picture, ErrorReason::InvalidRequest);
}
