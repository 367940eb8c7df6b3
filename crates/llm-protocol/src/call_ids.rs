//! Call ids and tool names for providers that restrict their characters and length and want unique ids.
//!
//! Another provider's ids may contain any characters and may repeat from one answer to the next (`call_0`). A
//! model may also call a tool by a name that does not exist.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::dialect::CallIdForm;

/// The longest accepted id (OpenAI's Responses, Bedrock) and name (OpenAI, Bedrock), in characters.
const MAX_LENGTH: usize = 64;
/// The longest id that OpenAI's chat accepts, in characters. <https://github.com/vercel/ai/issues/5171>
const MAX_CHAT_ID: usize = 40;
/// The length of Mistral's ids, in characters. <https://github.com/anomalyco/opencode/issues/1680>
const NINE: usize = 9;

/// The tool name for a call whose model gave none.
pub(crate) const UNNAMED: &str = "unnamed";

/// Assigns ids to the calls of one request, in the order of the conversation. An id depends only on the calls
/// before it, so a longer conversation begins with the same bytes.
#[derive(Debug)]
pub(crate) struct CallIds<'a> {
    form: Form,
    given: HashSet<Cow<'a, str>>,
    newest: HashMap<&'a str, Cow<'a, str>>,
}

/// The ids that a provider accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Any characters, at most [`MAX_LENGTH`] of them.
    Any,
    /// At most [`MAX_LENGTH`] of `[a-zA-Z0-9_-]`.
    Plain,
    /// Exactly [`NINE`] of `[a-zA-Z0-9]`.
    Nine,
}

impl<'a> CallIds<'a> {
    /// Makes ids of this form.
    pub(crate) fn of(form: CallIdForm) -> Self {
        match form {
            CallIdForm::Nine => Self { form: Form::Nine, ..Self::plain() },
        }
    }

    /// Makes ids of `[a-zA-Z0-9_-]`.
    pub(crate) fn plain() -> Self {
        Self { form: Form::Plain, given: HashSet::new(), newest: HashMap::new() }
    }

    /// Makes ids of any characters.
    pub(crate) fn any() -> Self {
        Self { form: Form::Any, ..Self::plain() }
    }

    /// Returns the id for the next call: its own if that is accepted and unused, otherwise a new one.
    pub(crate) fn of_call(&mut self, id: &'a str) -> Cow<'a, str> {
        let own = self.accepted(id);
        let is_taken = |taken: &str| self.given.contains(taken);
        let free = match self.form {
            Form::Any | Form::Plain => distinct(own, is_taken),
            Form::Nine => distinct_nine(own, is_taken),
        };
        self.given.insert(free.clone());
        self.newest.insert(id, free.clone());
        free
    }

    /// Returns the id for a result: the one given to the newest call with this id.
    pub(crate) fn of_result(&self, id: &'a str) -> Cow<'a, str> {
        self.newest.get(id).cloned().unwrap_or_else(|| self.accepted(id))
    }

    fn accepted(&self, id: &'a str) -> Cow<'a, str> {
        let id = if id.is_empty() { "call" } else { id };
        match self.form {
            Form::Any => cut(Cow::Borrowed(id), MAX_LENGTH),
            Form::Plain => cut(plain(id), MAX_LENGTH),
            Form::Nine => nine(id),
        }
    }
}

/// Returns nine letters and digits: the id's last ones, because ids often begin alike (`call_…`), padded with
/// leading zeros.
fn nine(id: &str) -> Cow<'_, str> {
    if id.len() == NINE && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Cow::Borrowed(id);
    }
    let mut last: Vec<char> =
        id.chars().rev().filter(char::is_ascii_alphanumeric).take(NINE).collect();
    last.resize(NINE, '0');
    Cow::Owned(last.into_iter().rev().collect())
}

/// Returns the id, or replaces its end with the first number that makes it unused.
fn distinct_nine<'a>(id: Cow<'a, str>, is_taken: impl Fn(&str) -> bool) -> Cow<'a, str> {
    if !is_taken(&id) {
        return id;
    }
    let numbered = (2_u64..).map(|copy| {
        let number = copy.to_string();
        Cow::Owned(format!("{}{number}", &id[..NINE.saturating_sub(number.len())]))
    });
    numbered
        .into_iter()
        .find(|id| !is_taken(id))
        .expect("a conversation has fewer calls than there are numbers")
}

/// Returns the id, or appends the first number that makes it unused.
pub(crate) fn distinct<'a>(id: Cow<'a, str>, is_taken: impl Fn(&str) -> bool) -> Cow<'a, str> {
    if !is_taken(&id) {
        return id;
    }
    let numbered = (2_u64..).map(|copy| {
        let number = format!("_{copy}");
        let room = MAX_LENGTH.max(id.len()).min(id.len() + number.len()) - number.len();
        Cow::Owned(format!("{}{number}", &id[..id.floor_char_boundary(room)]))
    });
    numbered.into_iter().find(|id| !is_taken(id)).expect("one of endlessly many is free")
}

/// Returns a called tool's name with only `[a-zA-Z0-9_-]`. Unknown names may collide; they only must not make
/// the provider refuse the conversation.
pub(crate) fn tool_name(name: &str) -> Cow<'_, str> {
    if name.is_empty() {
        return Cow::Borrowed(UNNAMED);
    }
    if name.bytes().all(is_plain) {
        return cut(Cow::Borrowed(name), MAX_LENGTH);
    }
    let plain =
        |letter: char| if letter.is_ascii() && is_plain(letter as u8) { letter } else { '_' };
    cut(Cow::Owned(name.chars().map(plain).collect()), MAX_LENGTH)
}

/// Returns a called function's name with only the characters that Gemini accepts, which are more:
/// <https://ai.google.dev/api/caching#FunctionDeclaration>.
pub(crate) fn function_name(name: &str) -> Cow<'_, str> {
    if name.is_empty() {
        return Cow::Borrowed(UNNAMED);
    }
    let is_accepted = |letter: char| letter.is_ascii_alphanumeric() || "_-.:".contains(letter);
    let begins_well =
        name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    if begins_well && name.chars().all(is_accepted) {
        return cut(Cow::Borrowed(name), MAX_LENGTH);
    }
    let fitted = name.chars().map(|letter| if is_accepted(letter) { letter } else { '_' });
    let first = (!begins_well).then_some('_');
    cut(Cow::Owned(first.into_iter().chain(fitted).collect()), MAX_LENGTH)
}

/// Returns a call's id with at most [`MAX_CHAT_ID`] characters. A longer one ends with its hash, because long ids
/// often begin alike.
pub(crate) fn short_id(id: &str) -> Cow<'_, str> {
    if id.chars().nth(MAX_CHAT_ID).is_none() {
        return Cow::Borrowed(id);
    }
    let end = format!("_{:016x}", hash(id));
    let begin = cut(Cow::Borrowed(id), MAX_CHAT_ID - end.len());
    Cow::Owned(format!("{begin}{end}"))
}

/// Returns the FNV-1a hash of a text, which is the same in any build:
/// <http://www.isthe.com/chongo/tech/comp/fnv/>.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Replaces every other character with `_` and its bytes in hexadecimal.
fn plain(id: &str) -> Cow<'_, str> {
    if id.bytes().all(is_plain) {
        return Cow::Borrowed(id);
    }
    let mut text = String::with_capacity(id.len() + 8);
    for byte in id.bytes() {
        if is_plain(byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("_{byte:02x}"));
        }
    }
    Cow::Owned(text)
}

fn cut(text: Cow<'_, str>, length: usize) -> Cow<'_, str> {
    // The limit counts characters; a text never has more characters than bytes.
    match text.char_indices().nth(length) {
        None => text,
        Some((end, _)) => match text {
            Cow::Borrowed(text) => Cow::Borrowed(&text[..end]),
            Cow::Owned(mut text) => {
                text.truncate(end);
                Cow::Owned(text)
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_accepted_and_unique_and_results_find_their_calls() {
        let mut ids = CallIds::plain();
        assert_eq!(ids.of_call("toolu_01-A"), "toolu_01-A");
        assert_eq!(ids.of_call("functions.read:0"), "functions_2eread_3a0");
        assert_eq!(ids.of_result("functions.read:0"), "functions_2eread_3a0");
        // An id that looks rewritten still gets its own number.
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

    #[test]
    fn long_ids_are_cut_and_told_apart() {
        let long = |end: &str| format!("{}{end}", "a".repeat(90));
        let (first, second) = (long("1"), long("2"));
        for mut ids in [CallIds::plain(), CallIds::any()] {
            let given: Vec<String> =
                [&first, &second].map(|id| ids.of_call(id).into_owned()).into();
            assert_eq!(given, ["a".repeat(64), format!("{}_2", "a".repeat(62))]);
            assert_eq!(ids.of_result(&first), given[0]);
            assert_eq!(ids.of_result(&second), given[1]);
        }
        let mut ids = CallIds::any();
        assert_eq!(ids.of_call("functions.read:0 é"), "functions.read:0 é");
    }

    // Finding llm 3: Mistral takes only ids of nine letters and digits.
    #[test]
    fn nine_letters_and_digits_are_unique_and_stable() {
        let mut ids = CallIds::of(CallIdForm::Nine);
        assert_eq!(ids.of_call("abcDEF123"), "abcDEF123");
        assert_eq!(ids.of_call("call_PTLP8xhu3uwZk4l3nlnrrJha"), "3nlnrrJha");
        assert_eq!(ids.of_result("call_PTLP8xhu3uwZk4l3nlnrrJha"), "3nlnrrJha");
        assert_eq!(ids.of_call("call_0"), "0000call0");
        assert_eq!(ids.of_call("call_0"), "0000call2");
        assert_eq!(ids.of_result("call_0"), "0000call2");
        assert_eq!(ids.of_call(""), "00000call");
        assert_eq!(ids.of_call("é"), "000000000");
        assert_eq!(ids.of_call("ü"), "000000002");
    }

    // Finding: report 30-a13 (vercel/ai#5171).
    #[test]
    fn a_long_id_for_chat_ends_with_its_hash() {
        let long = "chatcmpl-tool-0123456789abcdef0123456789abcdef";
        assert_eq!(short_id(long), "chatcmpl-tool-012345678_7059c8a482880eeb");
        let other = short_id("chatcmpl-tool-0123456789abcdef0123456789abcdee");
        assert_eq!(other, "chatcmpl-tool-012345678_7059c9a48288109e");
        let longest = "é".repeat(40);
        for id in ["", "call_0", "functions.read:0 é", longest.as_str()] {
            assert!(matches!(short_id(id), Cow::Borrowed(own) if own == id), "{id}");
        }
        assert_eq!(short_id(&"é".repeat(41)).chars().count(), 40);
    }

    // Finding: report 30-a12 (mastra-ai/mastra#13632).
    #[test]
    fn names_of_functions_are_accepted_by_gemini() {
        let long = "b".repeat(99);
        for (name, accepted) in [
            ("read_file-2", "read_file-2"),
            ("browser.tabs:open", "browser.tabs:open"),
            ("view_file\" path=\"a", "view_file__path__a"),
            ("2nd", "_2nd"),
            ("größe", "gr__e"),
            ("", "unnamed"),
            (long.as_str(), &long[..64]),
        ] {
            assert_eq!(function_name(name), accepted);
        }
    }

    #[test]
    fn names_of_tools_are_accepted() {
        let long = "b".repeat(99);
        for (name, accepted) in [
            ("read_file-2", "read_file-2"),
            ("functions.read file", "functions_read_file"),
            ("größe", "gr__e"),
            ("", "unnamed"),
            (long.as_str(), &long[..64]),
        ] {
            assert_eq!(tool_name(name), accepted);
        }
    }
}
