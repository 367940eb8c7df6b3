//! Projects, lists of sessions, and the ways to begin a session.

use access::Need::{SessionPrompt, SessionRead};

use super::{get, post};
use crate::surface::native::{agents, import, platform, projects, sent, sessions};
use crate::table::policy::Policy::Needs;
use crate::table::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/project", Needs(SessionRead), "project.list", "List the projects", projects::list),
        post(
            "/project",
            Needs(SessionPrompt),
            "project.create",
            "Make the project of a directory, or find it",
            projects::init,
        ),
        post(
            "/project/init",
            Needs(SessionPrompt),
            "project.init",
            "Make the project of a directory, or find it",
            projects::init,
        ),
        get(
            "/project/{project}/agent",
            Needs(SessionRead),
            "agent.list",
            "List the agents that a prompt may choose",
            agents::of_project,
        ),
        get(
            "/project/{project}/session",
            Needs(SessionRead),
            "project.session.list",
            "List a project's sessions, newest first",
            sessions::list,
        ),
        post(
            "/project/{project}/session",
            Needs(SessionPrompt),
            "session.create",
            "Make a session",
            sessions::create_route,
        ),
        get(
            "/platform/session",
            Needs(SessionRead),
            "session.list",
            "List all sessions, newest first",
            platform::sessions,
        ),
        post(
            "/platform/repository",
            Needs(SessionPrompt),
            "repository.name",
            "Name a repository of one's own machine, and learn which of its commits are here",
            sent::name,
        ),
        post(
            "/platform/upload",
            Needs(SessionPrompt),
            "upload.create",
            "Send a pack of git objects",
            sent::upload,
        ),
        post(
            "/platform/session/import",
            Needs(SessionPrompt),
            "session.import",
            "Make a session of what an export wrote, here or with the released client",
            import::take,
        ),
    ]
}
