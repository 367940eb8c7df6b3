#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    llm_protocol_fuzz::cut(llm_protocol::Framing::AwsEventStream, data);
    let messages = llm_protocol_fuzz::messages(data);
    llm_protocol_fuzz::cut(llm_protocol::Framing::AwsEventStream, &messages);
});
