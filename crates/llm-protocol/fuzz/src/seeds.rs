//! Fills `corpus/` with recorded answers of real providers, which help the fuzzer to find more.

use std::error::Error;
use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use llm_protocol::Protocol;
use serde_json::Value;

const FOLDERS: &[(&str, &str, Protocol)] = &[
    ("openai-chat", "openai_chat", Protocol::OpenAiChat),
    ("openai-compatible-chat", "openai_chat", Protocol::OpenAiChat),
    ("cloudflare-workers-ai", "openai_chat", Protocol::OpenAiChat),
    ("openai-responses", "openai_responses", Protocol::OpenAiResponses),
    ("anthropic-messages", "anthropic_messages", Protocol::AnthropicMessages),
    ("gemini", "gemini", Protocol::Gemini),
    ("bedrock-converse", "bedrock_converse", Protocol::BedrockConverse),
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (folder, target, protocol) in FOLDERS {
        for file in fs::read_dir(root.join("../tests/recordings").join(folder))? {
            let file = file?.path();
            let name = file.file_stem().ok_or("a file has a name")?.to_owned();
            let recording: Value = serde_json::from_slice(&fs::read(&file)?)?;
            let response = &recording["interactions"][0]["response"];
            if response["status"] != 200 {
                continue;
            }
            let body = response["body"].as_str().ok_or("a response has a body")?;
            let bytes = match response["bodyEncoding"].as_str() {
                Some("base64") => STANDARD.decode(body)?,
                _ => body.as_bytes().to_vec(),
            };
            let frames = protocol.framer(1 << 24).push(&bytes)?;
            let raw = if *target == "bedrock_converse" { "aws_event_stream" } else { "sse" };
            for (target, seed) in
                [(*target, frames.join("\n").into_bytes()), (raw, [vec![7], bytes].concat())]
            {
                let corpus = root.join("corpus").join(target);
                fs::create_dir_all(&corpus)?;
                fs::write(corpus.join(&name), seed)?;
            }
        }
    }
    Ok(())
}
