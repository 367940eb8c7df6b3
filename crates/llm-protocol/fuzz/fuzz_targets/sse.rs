#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| llm_protocol_fuzz::cut(llm_protocol::Framing::Sse, data));
