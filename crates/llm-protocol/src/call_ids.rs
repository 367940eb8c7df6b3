//! Ids of calls for providers that accept only some characters in them and each only once.
//!
//! Another provider's ids may hold anything, and repeat from one answer to the next (`call_0`).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Gives the calls of one request their ids, in the order of the conversation. What is given depends only on the
/// calls before, so a longer conversation begins with the same bytes.
#[derive(Debug, Default)]
pub(crate) struct CallIds<'a> {
    given: HashSet<Cow<'a, str>>,
    newest: HashMap<&'a str, Cow<'a, str>>,
}

impl<'a> CallIds<'a> {
    /// The id of the next call: its own if it is made of `[a-zA-Z0-9_-]` and new, else one that is.
    pub(crate) fn of_call(&mut self, id: &'a str) -> Cow<'a, str> {
        let plain = accepted(id);
        let mut free = plain.clone();
        let mut copy = 1_u32;
        while self.given.contains(&free) {
            copy += 1;
            free = Cow::Owned(format!("{plain}_{copy}"));
        }
        self.given.insert(free.clone());
        self.newest.insert(id, free.clone());
        free
    }

    /// The id in a result: that of the newest call of this id.
    pub(crate) fn of_result(&self, id: &'a str) -> Cow<'a, str> {
        self.newest.get(id).cloned().unwrap_or_else(|| accepted(id))
    }
}

/// Other characters become `_` and their bytes in hexadecimal; no id at all becomes `call`.
fn accepted(id: &str) -> Cow<'_, str> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if id.is_empty() {
        return Cow::Borrowed("call");
    }
    if id.bytes().all(fine) {
        return Cow::Borrowed(id);
    }
    let mut text = String::with_capacity(id.len() + 8);
    for byte in id.bytes() {
        if fine(byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("_{byte:02x}"));
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_accepted_and_unique_and_results_find_their_calls() {
        let mut ids = CallIds::default();
        assert_eq!(ids.of_call("toolu_01-A"), "toolu_01-A");
        assert_eq!(ids.of_call("functions.read:0"), "functions_2eread_3a0");
        assert_eq!(ids.of_result("functions.read:0"), "functions_2eread_3a0");
        // What looks like a rewritten one is not taken for it.
        assert_eq!(ids.of_call("functions_2eread_3a0"), "functions_2eread_3a0_2");
        assert_eq!(ids.of_call("call_0"), "call_0");
        assert_eq!(ids.of_result("call_0"), "call_0");
        assert_eq!(ids.of_call("call_0"), "call_0_2");
        assert_eq!(ids.of_result("call_0"), "call_0_2");
        assert_eq!(ids.of_call("call_0_2"), "call_0_2_2");
        assert_eq!(ids.of_result("call_0_2"), "call_0_2_2");
        assert_eq!(ids.of_call(""), "call");
        assert_eq!(ids.of_call("é"), "_c3_a9");
        assert_eq!(ids.of_result("unknown id"), "unknown_20id");
    }
}
