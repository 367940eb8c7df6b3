#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| llm_protocol_fuzz::decode(
    llm_protocol::Protocol::Gemini,
    data
));
