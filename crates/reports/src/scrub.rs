//! An event with nothing in it but what may leave.

use sentry::protocol::{Event, Exception, Frame, Stacktrace};

/// The tags that may leave, when their values are plain words.
const TAGS: [&str; 4] = ["org", "status", "task", "kind"];

/// Stands for the text of a panic.
const WITHHELD: &str = "(its text is withheld)";

/// Makes an event anew. Whatever the library, a later version of it, or a caller has put into the old one stays behind.
pub(crate) fn scrubbed(event: &Event<'_>, role: &str, suppressed: u32) -> Event<'static> {
    let mut scrubbed = Event {
        event_id: event.event_id,
        level: event.level,
        timestamp: event.timestamp,
        release: event.release.clone().map(|release| release.into_owned().into()),
        environment: event.environment.clone().map(|named| named.into_owned().into()),
        exception: event.exception.iter().map(exception).collect::<Vec<_>>().into(),
        ..Event::default()
    };
    let tags =
        event.tags.iter().filter(|(name, value)| TAGS.contains(&name.as_str()) && is_word(value));
    scrubbed.tags.extend(tags.map(|(name, value)| (name.clone(), value.clone())));
    scrubbed.tags.insert("role".to_owned(), role.to_owned());
    if suppressed > 0 {
        scrubbed.tags.insert("suppressed".to_owned(), suppressed.to_string());
    }
    scrubbed
}

fn exception(from: &Exception) -> Exception {
    Exception {
        ty: if is_path(&from.ty) { from.ty.clone() } else { "error".to_owned() },
        // Sentry's lists show it beside the type.
        value: from.value.clone().filter(|value| is_place(value)).or_else(|| Some(WITHHELD.into())),
        stacktrace: from.stacktrace.as_ref().map(stack),
        ..Exception::default()
    }
}

fn stack(from: &Stacktrace) -> Stacktrace {
    Stacktrace { frames: from.frames.iter().map(frame).collect(), ..Stacktrace::default() }
}

fn frame(from: &Frame) -> Frame {
    Frame {
        function: from.function.clone(),
        filename: from.filename.as_deref().or(from.abs_path.as_deref()).map(last_two),
        lineno: from.lineno,
        in_app: from.in_app,
        instruction_addr: from.instruction_addr,
        ..Frame::default()
    }
}

/// Returns the last two names of a path: the folders before them are those of a machine.
fn last_two(path: &str) -> String {
    let names: Vec<&str> = path.rsplit(['/', '\\']).take(2).collect();
    names.into_iter().rev().collect::<Vec<_>>().join("/")
}

/// Returns whether a text is a short word of ours, such as `trace exporter`.
fn is_word(text: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || " -_".contains(letter);
    !text.is_empty() && text.len() <= 64 && text.chars().all(is_plain)
}

/// Returns whether a text is the path of a module, such as `tasks::group`.
fn is_path(text: &str) -> bool {
    let is_name = |letter: char| {
        letter.is_ascii_lowercase() || letter.is_ascii_digit() || "_:".contains(letter)
    };
    !text.is_empty() && text.len() <= 128 && text.chars().all(is_name)
}

/// Returns whether a text is a place in our sources, such as `crates/tasks/src/group.rs:206`.
fn is_place(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(file, line)| {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
        file.ends_with(".rs")
            && file.len() <= 200
            && file.chars().all(is_plain)
            && line.parse::<u32>().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use sentry::protocol::{Breadcrumb, LogEntry, Map, Request, User};

    use super::*;

    const CANARY: &str = "CANARY /home/ada/secret.txt";

    /// An event with a canary in each field that a text can get into.
    fn full() -> Event<'static> {
        let named = || Map::from([(CANARY.to_owned(), CANARY.to_owned())]);
        let frame = Frame {
            function: Some("session::drain".to_owned()),
            abs_path: Some(format!("/home/{CANARY}/crates/session/src/drain.rs")),
            module: Some(CANARY.into()),
            package: Some(CANARY.into()),
            symbol: Some(CANARY.into()),
            context_line: Some(CANARY.into()),
            pre_context: vec![CANARY.into()],
            post_context: vec![CANARY.into()],
            vars: Map::from([(CANARY.to_owned(), CANARY.into())]),
            ..Frame::default()
        };
        let stack = || Some(Stacktrace { frames: vec![frame.clone()], ..Stacktrace::default() });
        let exception = Exception {
            ty: CANARY.into(),
            value: Some(CANARY.into()),
            module: Some(CANARY.into()),
            stacktrace: stack(),
            raw_stacktrace: stack(),
            ..Exception::default()
        };
        let user = User {
            email: Some(CANARY.into()),
            other: Map::from([(CANARY.to_owned(), CANARY.into())]),
            ..User::default()
        };
        let request = Request {
            data: Some(CANARY.into()),
            query_string: Some(CANARY.into()),
            cookies: Some(CANARY.into()),
            headers: named(),
            env: named(),
            ..Request::default()
        };
        let mut tags = named();
        tags.extend([
            ("org".to_owned(), CANARY.to_owned()),
            ("task".to_owned(), "trace exporter".to_owned()),
        ]);
        Event {
            culprit: Some(CANARY.into()),
            transaction: Some(CANARY.into()),
            message: Some(CANARY.into()),
            logentry: Some(LogEntry { message: CANARY.into(), params: vec![CANARY.into()] }),
            logger: Some(CANARY.into()),
            modules: named(),
            server_name: Some(CANARY.into()),
            dist: Some(CANARY.into()),
            user: Some(user),
            request: Some(request),
            breadcrumbs: vec![Breadcrumb { message: Some(CANARY.into()), ..Breadcrumb::default() }]
                .into(),
            exception: vec![exception].into(),
            stacktrace: stack(),
            fingerprint: vec![CANARY.into()].into(),
            tags,
            extra: Map::from([(CANARY.to_owned(), CANARY.into())]),
            release: Some("1.2.3".into()),
            environment: Some("production".into()),
            ..Event::default()
        }
    }

    #[test]
    fn no_canary_of_any_field_leaves() {
        let told = format!("{:?}", scrubbed(&full(), "worker", 3));
        assert!(!told.contains("CANARY") && !told.contains("ada"), "{told}");
        for kept in [
            "1.2.3",
            "production",
            "worker",
            "trace exporter",
            "session::drain",
            "src/drain.rs",
            "suppressed",
        ] {
            assert!(told.contains(kept), "{kept}: {told}");
        }
    }

    #[test]
    fn places_and_paths_of_ours_are_kept() {
        assert!(is_place("crates/tasks/src/group.rs:206") && is_path("tasks::group"));
        assert!(
            !is_place("the file /etc/passwd:1") && !is_place("a.rs:x") && !is_path("Not found")
        );
    }
}
