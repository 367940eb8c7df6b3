use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::key::is_plain;
use crate::{ContextSource, Loaded, SourceKey, SystemContext};

/// The most bytes of an entry's value, as JSON text.
pub const MAX_ENTRY_BYTES: usize = 8 * 1024;
/// The most entries of one session.
pub const MAX_ENTRIES: usize = 64;
/// The most bytes of an entry's key.
pub const MAX_ENTRY_KEY_BYTES: usize = 64;

const AREA: &str = "entry";

/// Returns whether a client may use this key for an entry: letters, digits and `.`, `_`, `-`; at most
/// [`MAX_ENTRY_KEY_BYTES`].
#[must_use]
pub fn is_entry_key(key: &str) -> bool {
    (1..=MAX_ENTRY_KEY_BYTES).contains(&key.len()) && key.bytes().all(is_plain)
}

/// A value that a client sets for the model.
#[derive(Debug, Clone)]
struct Entry {
    key: String,
    /// The client's JSON text, verbatim. `null` is a value.
    value: String,
}

impl Entry {
    fn shown(&self) -> String {
        format!("<context key=\"{}\">\n{}\n</context>", self.key, self.value)
    }
}

impl ContextSource for Entry {
    /// A digest. Otherwise the snapshot of every later update would have up to 64 values of 8 KiB.
    type Told = String;

    fn told(&self) -> String {
        hex::encode(Sha256::digest(self.value.as_bytes()))
    }

    fn baseline(&self) -> String {
        self.shown()
    }

    fn update(&self, _told: &String) -> String {
        format!("This context entry is now:\n{}", self.shown())
    }

    fn removal(&self) -> Option<String> {
        Some(format!("The context entry \"{}\" no longer applies.", self.key))
    }
}

/// Returns one source for each entry of a session, in the order of their keys.
#[must_use]
pub fn entries(entries: &BTreeMap<String, String>) -> SystemContext {
    let one = |(key, value): (&String, &String)| {
        let source = SourceKey::escaped(AREA, key);
        let name = source.as_str()[AREA.len() + 1..].to_owned();
        let value = value.replace('\0', "\u{FFFD}");
        SystemContext::make(source, Loaded::Value(Entry { key: name, value }))
    };
    SystemContext::combine(entries.iter().map(one)).expect("escaping keeps keys apart")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ContextSnapshot, Reconciled};

    fn of(all: &[(&str, &str)]) -> SystemContext {
        entries(&all.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect())
    }

    fn told(context: &SystemContext) -> ContextSnapshot {
        context.initialize().expect("entries are always there").snapshot
    }

    fn updated(context: &SystemContext, told: &ContextSnapshot) -> String {
        let reconciled = context.reconcile(told);
        let Reconciled::Updated { rendered, .. } = reconciled else { panic!("{reconciled:?}") };
        rendered
    }

    #[test]
    fn entries_are_told_in_the_order_of_their_keys_with_the_clients_bytes() {
        let both = of(&[("ticket", "{\"id\": 7}"), ("branch", "\"main\"")]);
        assert_eq!(
            both.initialize().expect("available").baseline,
            "<context key=\"branch\">\n\"main\"\n</context>\n\n\
             <context key=\"ticket\">\n{\"id\": 7}\n</context>"
        );
        let moved = updated(&of(&[("ticket", "{\"id\": 8}")]), &told(&both));
        assert_eq!(
            moved,
            "This context entry is now:\n<context key=\"ticket\">\n{\"id\": 8}\n</context>\n\n\
             The context entry \"branch\" no longer applies."
        );
    }

    #[test]
    fn null_is_a_value_and_not_a_removal() {
        let set = told(&of(&[("ticket", "7")]));
        let null = of(&[("ticket", "null")]);
        assert!(updated(&null, &set).contains(">\nnull\n<"));
        assert_eq!(null.reconcile(&told(&null)), Reconciled::Unchanged);
        assert!(updated(&of(&[]), &told(&null)).contains("no longer applies"));
    }

    #[test]
    fn keys_that_nobody_should_have_stay_apart() {
        let odd = of(&[("a/b", "1"), ("a%2fb", "2"), ("\"><x", "3"), ("", "4")]);
        assert_eq!(told(&odd).0.len(), 4);
        let baseline = odd.initialize().expect("available").baseline;
        assert!(baseline.contains("<context key=\"a%2fb\">\n1\n"), "{baseline}");
        assert!(baseline.contains("<context key=\"%22%3e%3cx\">\n3\n"), "{baseline}");
    }

    #[test]
    fn a_key_is_short_and_plain() {
        assert!(is_entry_key("a.b-C_1") && is_entry_key(&"x".repeat(MAX_ENTRY_KEY_BYTES)));
        for bad in ["", "a/b", "a b", "ä", &"x".repeat(MAX_ENTRY_KEY_BYTES + 1)] {
            assert!(!is_entry_key(bad), "{bad}");
        }
    }
}
