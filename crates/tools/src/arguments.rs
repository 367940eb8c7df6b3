//! Parses the model's bytes into a tool's arguments. Errors are texts that a model can act on.

mod meant;

use serde::de::DeserializeOwned;
use serde_json::Value;

use self::meant::{as_object, in_own_terms};
pub(crate) use self::meant::{quote_word, without_fence};
use crate::call::{Stopped, ToolCall};

/// The most bytes of one call's arguments.
const MAX_BYTES: usize = 10 * 1024 * 1024;

/// Parses arguments. Ignores unknown ones, because models bring habits from other tools.
pub(crate) fn parse<T: DeserializeOwned>(call: &ToolCall) -> Result<T, Stopped> {
    parse_text(&call.name, &call.arguments)
}

/// Parses the arguments of a call of the tool `name`. Rules and tools read them by this, so that they read the same. What is not as
/// the schema wants it, but has one reading, is read as that.
pub(crate) fn parse_text<T: DeserializeOwned>(name: &str, arguments: &str) -> Result<T, Stopped> {
    let text = match arguments.trim() {
        "" => "{}",
        text => text,
    };
    if text.len() > MAX_BYTES {
        return Err(Stopped::because(format!(
            "the arguments of {name} are larger than {MAX_BYTES} bytes; split the work into several calls"
        )));
    }
    let value: Value = as_object(text).map_err(|error| {
        Stopped::because(format!(
            "the arguments of {name} are not valid JSON: {error}. Send one JSON object, and escape newlines and \
             quotes inside strings"
        ))
    })?;
    let Value::Object(mut fields) = value else {
        return Err(Stopped::because(format!("the arguments of {name} must be a JSON object")));
    };
    in_own_terms(name, &mut fields);
    serde_json::from_value(Value::Object(fields)).map_err(|error| {
        let error = say_in_words(&error.to_string());
        Stopped::because(format!("the arguments of {name} do not fit its schema: {error}"))
    })
}

/// Returns an error without the names that types have here.
fn say_in_words(error: &str) -> String {
    let types = [
        ("usize", "a whole number from 0 on"),
        ("u64", "a whole number from 0 on"),
        ("i64", "a whole number"),
    ];
    types.iter().fold(error.to_owned(), |error, (name, words)| {
        error.replace(&format!("expected {name}"), &format!("expected {words}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, serde::Deserialize, PartialEq)]
    struct Arguments {
        path: String,
        limit: Option<u64>,
    }

    fn parsed(arguments: &str) -> Result<Arguments, String> {
        let call = ToolCall { id: "c".into(), name: "read".into(), arguments: arguments.into() };
        parse(&call).map_err(|stopped| match stopped {
            Stopped::Failed(message) => message,
            other @ (Stopped::Midway(_) | Stopped::Interrupted) => panic!("{other:?}"),
        })
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (arguments, said) in [
            ("{\"path\": \"a\u{1}b\"}", "not valid JSON"),
            ("{\"path\": ", "not valid JSON"),
            ("[1]", "must be a JSON object"),
            ("", "missing field `path`"),
            ("{\"path\": 3}", "expected a string"),
            ("{\"path\": \"a\", \"limit\": -1}", "expected a whole number"),
        ] {
            let message = parsed(arguments).unwrap_err();
            assert!(message.contains(said) && message.contains("read"), "{message}");
        }
    }

    #[test]
    fn the_right_meaning_in_the_wrong_form_is_read() {
        let expected = Arguments { path: "a,}".into(), limit: Some(2) };
        for arguments in [
            r#"{"path": "a,}", "limit": 2}"#,
            r#"{"path": "a,}", "limit": "2"}"#,
            r#"{"path": "a,}", "limit": " 2 "}"#,
            r#"{"path": "a,}", "limit": 2.0}"#,
            r#"{"file_path": "a,}", "limit": 2}"#,
            r#"{"FilePath": "a,}", "limit": "2.0"}"#,
            r#"{"filename": "a,}", "limit": 2, "offset": null}"#,
            r#"{"path": "a,}", "file_path": "a,}", "limit": 2}"#,
            r#"{"path": "a,}", "limit": 2,}"#,
            "{\"path\": \"a,}\",\n \"limit\": 2 ,\n}",
            "```json\n{\"path\": \"a,}\", \"limit\": 2}\n```",
            "~~~\n{\"path\": \"a,}\", \"limit\": 2}\n~~~",
            r#""{\"path\": \"a,}\", \"limit\": 2}""#,
            r#"{"arguments": {"path": "a,}", "limit": 2}}"#,
            r#"{"input": "{\"path\": \"a,}\", \"limit\": 2}"}"#,
            r#"{}{"path": "a,}", "limit": 2}"#,
            r#"{"path": "a,}", "limit": 2}{"limit": 2, "path": "a,}"}"#,
            "{}\n{\"path\": \"a,}\", \"limit\": 2}\n{}",
        ] {
            assert_eq!(parsed(arguments), Ok(expected.clone()), "{arguments}");
        }
        for arguments in [
            r#"{"path": "a", "limit": "two"}"#,
            r#"{"path": "a", "limit": 2.5}"#,
            r#"{"path": "a", "limit": "-1"}"#,
            r#"{"path": "a"} {"path": "b"}"#,
            r#"{"path": "a"} {"limit": 2}"#,
            r#"{}{"path": "a""#,
            r#"{"path": "a"} and more"#,
            r#"{"path": ["a"]}"#,
            r#"{"path": "a",, "limit": 2}"#,
        ] {
            assert!(parsed(arguments).is_err(), "{arguments}");
        }
    }

    #[test]
    fn other_names_and_unknown_arguments_are_taken() {
        let expected = Arguments { path: "a".into(), limit: None };
        assert_eq!(parsed("{\"filePath\":\"a\",\"description\":\"x\"}"), Ok(expected));
    }
}
