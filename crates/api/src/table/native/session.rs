//! One session: its life, its files, its copies.

use access::Need::{SessionInspect, SessionPrompt, SessionRead};

use super::{both, delete, get, patch, post};
use crate::surface::native::{
    diff, export, fork, moves, outputs, repository, reverts, sessions, tree,
};
use crate::table::policy::Policy::Needs;
use crate::table::route::Route;

pub(super) fn routes() -> Vec<Route> {
    let mut routes = vec![
        get(
            "/platform/session/{session}/repository",
            Needs(SessionRead),
            "session.repository",
            "Show a session's repository, and how far its workspace is",
            repository::show,
        ),
        get(
            "/platform/session/{session}/patch",
            Needs(SessionRead),
            "session.patch",
            "Write a session's work as one patch",
            repository::patch,
        ),
        get(
            "/platform/session/{session}/bundle",
            Needs(SessionRead),
            "session.bundle",
            "Write a session's commits, and what is not committed, as a git bundle",
            repository::bundle,
        ),
        get(
            "/platform/session/{session}/output/{output}",
            Needs(SessionRead),
            "session.output",
            "Write a complete output, of which a result shows the ends",
            outputs::show,
        ),
        get(
            "/platform/session/{session}/export",
            Needs(SessionInspect),
            "session.export",
            "Write a session for another service: lines of JSON with its log, files and requests",
            export::show,
        ),
    ];
    routes.extend(at_both_addresses().into_iter().flatten());
    routes
}

fn at_both_addresses() -> [[Route; 2]; 11] {
    [
        both!(get, "", SessionRead, "session.get", "Show a session", sessions::show),
        both!(
            delete,
            "",
            SessionPrompt,
            "session.delete",
            "Delete a session and all below it, with their logs",
            sessions::remove,
        ),
        both!(
            patch,
            "",
            SessionPrompt,
            "session.change",
            "Change a session: its title, its metadata, whether it is archived",
            sessions::change,
        ),
        both!(
            get,
            "/children",
            SessionRead,
            "session.children",
            "List the sessions below this one",
            tree::children,
        ),
        both!(
            get,
            "/usage",
            SessionRead,
            "session.usage",
            "Count tokens and costs of a session and of its tree",
            tree::usage,
        ),
        both!(
            post,
            "/fork",
            SessionPrompt,
            "session.fork",
            "Begin a session with a copy of this one's conversation",
            fork::fork,
        ),
        both!(
            post,
            "/move",
            SessionPrompt,
            "session.move",
            "Go on in another directory",
            moves::post,
        ),
        both!(
            post,
            "/revert",
            SessionPrompt,
            "session.revert",
            "Go back to before a message",
            reverts::revert,
        ),
        both!(
            post,
            "/revert/commit",
            SessionPrompt,
            "session.revert.commit",
            "Make a revert final",
            reverts::commit,
        ),
        both!(
            post,
            "/unrevert",
            SessionPrompt,
            "session.unrevert",
            "Undo a revert",
            reverts::unrevert,
        ),
        both!(get, "/diff", SessionRead, "session.diff", "Show the changes of files", diff::show),
    ]
}
