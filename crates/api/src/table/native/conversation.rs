//! One session's conversation: messages, log, asks, inbox, context entries.

use access::Need::{SessionPrompt, SessionRead};

use super::{both, delete, get, patch, post, put};
use crate::surface::native::{asks, entries, inbox, log, messages, platform, sessions, wait};
use crate::table::policy::Policy::Needs;
use crate::table::route::Route;

pub(super) fn routes() -> Vec<Route> {
    let mut routes = vec![
        post(
            "/project/{project}/session/{session}/abort",
            Needs(SessionPrompt),
            "project.session.abort",
            "Interrupt what the session does",
            sessions::abort,
        ),
        get(
            "/project/{project}/session/{session}/message",
            Needs(SessionRead),
            "project.session.message.list",
            "List the messages of a session, oldest first",
            messages::list,
        ),
        post(
            "/project/{project}/session/{session}/message",
            Needs(SessionPrompt),
            "project.session.prompt",
            "Admit a prompt, and answer at once",
            messages::post,
        ),
        get(
            "/project/{project}/session/{session}/message/{message}",
            Needs(SessionRead),
            "session.message.get",
            "Show a message",
            messages::show,
        ),
        get(
            "/project/{project}/session/{session}/log",
            Needs(SessionRead),
            "project.session.log",
            "Read a session's log, or follow it as a stream",
            log::show,
        ),
        get(
            "/platform/ask",
            Needs(SessionRead),
            "ask.list",
            "List the calls that wait for an answer",
            asks::list,
        ),
        get(
            "/platform/permission",
            Needs(SessionRead),
            "permission.list",
            "List the permissions that people have saved for projects",
            asks::saved,
        ),
        delete(
            "/platform/permission/{saved}",
            Needs(SessionPrompt),
            "permission.delete",
            "Take a saved permission back",
            asks::forget,
        ),
        post(
            "/platform/ask/{ask}",
            Needs(SessionPrompt),
            "ask.reply",
            "Answer a call that waits",
            asks::reply,
        ),
        post(
            "/project/{project}/session/{session}/permission/{ask}",
            Needs(SessionPrompt),
            "project.session.permission.reply",
            "Answer a call that waits for a permission",
            asks::reply,
        ),
        get(
            "/platform/session/{session}/message",
            Needs(SessionRead),
            "session.message.list",
            "List the messages of a session, oldest first",
            platform::messages,
        ),
        post(
            "/platform/session/{session}/message",
            Needs(SessionPrompt),
            "session.prompt",
            "Admit a prompt, and answer at once",
            platform::post_message,
        ),
        get(
            "/platform/session/{session}/log",
            Needs(SessionRead),
            "session.log",
            "Read a session's log, or follow it as a stream",
            platform::log,
        ),
        post(
            "/platform/session/{session}/abort",
            Needs(SessionPrompt),
            "session.abort",
            "Interrupt what the session does",
            platform::abort,
        ),
    ];
    routes.extend(at_both_addresses().into_iter().flatten());
    routes
}

fn at_both_addresses() -> [[Route; 2]; 12] {
    [
        both!(
            get,
            "/ask",
            SessionRead,
            "session.ask.list",
            "List the calls of a session that wait for an answer",
            asks::of_session,
        ),
        both!(
            post,
            "/compact",
            SessionPrompt,
            "session.compact",
            "Ask for a compaction",
            inbox::compact,
        ),
        both!(
            post,
            "/synthetic",
            SessionPrompt,
            "session.synthetic",
            "Admit a text that no user wrote",
            inbox::synthetic,
        ),
        both!(
            post,
            "/resume",
            SessionPrompt,
            "session.resume",
            "Wake a session for what waits in its inbox",
            inbox::resume,
        ),
        both!(
            post,
            "/wait",
            SessionRead,
            "session.wait",
            "Wait until a session is idle",
            wait::wait,
        ),
        both!(
            get,
            "/inbox",
            SessionRead,
            "session.inbox.list",
            "List the inputs that wait",
            inbox::list,
        ),
        both!(
            patch,
            "/inbox/{message}",
            SessionPrompt,
            "session.inbox.change",
            "Change how a waiting input is delivered",
            inbox::change,
        ),
        both!(
            delete,
            "/inbox/{message}",
            SessionPrompt,
            "session.inbox.cancel",
            "Take a waiting input back",
            inbox::cancel,
        ),
        both!(
            get,
            "/context",
            SessionRead,
            "session.context.list",
            "List the context entries of a session",
            entries::list,
        ),
        both!(
            get,
            "/context/{key}",
            SessionRead,
            "session.context.get",
            "Show a context entry",
            entries::show,
        ),
        both!(
            put,
            "/context/{key}",
            SessionPrompt,
            "session.context.set",
            "Set a context entry to any JSON",
            entries::set,
        ),
        both!(
            delete,
            "/context/{key}",
            SessionPrompt,
            "session.context.delete",
            "Remove a context entry",
            entries::remove,
        ),
    ]
}
