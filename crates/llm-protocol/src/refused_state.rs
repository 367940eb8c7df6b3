//! Knows the refusals of state that came from the provider itself: sealed reasoning, signatures and ids of items.
//!
//! They come after another key or organisation, from proxies with several accounts, and by faults of the providers. The
//! same request is refused for ever, and one without the state is not.

/// The code of OpenAI and Azure.
const CODES: [&str; 1] = ["invalid_encrypted_content"];

/// Words that must all be in a message, in lower case, for each way to say it.
const SAYINGS: [&[&str]; 12] = [
    &["encrypted content", "could not be verified"],
    &["encrypted content", "could not be decrypted"],
    &["encrypted_content", "could not be verified"],
    &["encrypted_content", "could not be decrypted"],
    // Anthropic, and Bedrock and Vertex with its models.
    &["invalid `signature` in `thinking` block"],
    &["invalid signature in thinking block"],
    &["thinking", "blocks in the latest assistant message cannot be modified"],
    // Google.
    &["thought signature is not valid"],
    &["thought_signature is not valid"],
    &["corrupted thought signature"],
    // OpenAI: an item that it does not have, or whose neighbour it misses.
    &["items are not persisted when"],
    &["was provided without its required", "item"],
];

/// Returns whether a refusal is about replayed state. `codes` and `message` are in lower case.
pub(crate) fn is_state_refusal(status: u16, codes: &[String], message: &str) -> bool {
    let is_coded = codes.iter().any(|code| CODES.contains(&code.as_str()));
    let says = |words: &&[&str]| words.iter().all(|word| message.contains(word));
    let is_said = matches!(status, 0 | 400 | 403 | 404 | 422) && SAYINGS.iter().any(says);
    is_coded || is_said
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{ErrorReason, classify, classify_in_stream};

    // Finding next report 22, 23: they were invalid requests, for ever.
    #[test]
    fn refusals_of_replayed_state_are_known() {
        let messages = [
            "The encrypted content gAAAAABo…/ could not be verified. Reason: Encrypted content could not be decrypted or parsed.",
            "messages.1.content.0: Invalid `signature` in `thinking` block",
            "messages.3.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.",
            "Thought signature is not valid",
            "Corrupted thought signature.",
            "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
            "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
        ];
        for message in messages {
            let error = json!({ "message": message, "type": "invalid_request_error" });
            let body = json!({ "error": error }).to_string();
            assert_eq!(classify(400, None, &body).reason, ErrorReason::StateRefused, "{message}");
            assert_eq!(classify_in_stream(&error).reason, ErrorReason::StateRefused, "{message}");
        }
        let coded = json!({"error": {"message": "No.", "code": "invalid_encrypted_content"}});
        assert_eq!(classify(400, None, &coded.to_string()).reason, ErrorReason::StateRefused);
        for message in [
            "Function call is missing a thought_signature in functionCall parts.",
            "Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
            "The request signature we calculated does not match the signature you provided.",
        ] {
            let body = json!({"error": {"message": message}}).to_string();
            assert_eq!(classify(400, None, &body).reason, ErrorReason::InvalidRequest, "{message}");
        }
    }
}
