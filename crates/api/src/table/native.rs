//! The service's own routes: FEAT-0006's under `/project`, those of operators and our CLI under `/platform`, and the
//! two probes.

use axum::handler::Handler;
use http::Method;

use super::contract::Typed;
use super::route::Route;
use crate::ApiState;
use crate::surface::native::{
    agents, asks, credentials, diff, entries, explain, export, fork, health, import, inbox,
    instructions, log, messages, models, moves, oauth, platform, projects, providers, repository,
    reverts, sent, sessions, settings, tree, wait,
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/healthz", "health.live", "Say that the process runs", health::healthz),
        get("/readyz", "health.ready", "Say whether the database answers", health::readyz),
        get("/project", "project.list", "List the projects", projects::list),
        post(
            "/project",
            "project.create",
            "Make the project of a directory, or find it",
            projects::init,
        ),
        post(
            "/project/init",
            "project.init",
            "Make the project of a directory, or find it",
            projects::init,
        ),
        get(
            "/project/{project}/agent",
            "agent.list",
            "List the agents that a prompt may choose",
            agents::of_project,
        ),
        get(
            "/project/{project}/session",
            "project.session.list",
            "List a project's sessions, newest first",
            sessions::list,
        ),
        post(
            "/project/{project}/session",
            "session.create",
            "Make a session",
            sessions::create_route,
        ),
        get(
            "/project/{project}/session/{session}",
            "project.session.get",
            "Show a session",
            sessions::show,
        ),
        delete(
            "/project/{project}/session/{session}",
            "project.session.delete",
            "Delete a session and all below it, with their logs",
            sessions::remove,
        ),
        post(
            "/project/{project}/session/{session}/abort",
            "project.session.abort",
            "Interrupt what the session does",
            sessions::abort,
        ),
        get(
            "/project/{project}/session/{session}/message",
            "project.session.message.list",
            "List the messages of a session, oldest first",
            messages::list,
        ),
        post(
            "/project/{project}/session/{session}/message",
            "project.session.prompt",
            "Admit a prompt, and answer at once",
            messages::post,
        ),
        get(
            "/project/{project}/session/{session}/message/{message}",
            "session.message.get",
            "Show a message",
            messages::show,
        ),
        get(
            "/project/{project}/session/{session}/log",
            "project.session.log",
            "Read a session's log, or follow it as a stream",
            log::show,
        ),
        get("/platform/ask", "ask.list", "List the calls that wait for an answer", asks::list),
        get(
            "/platform/permission",
            "permission.list",
            "List the permissions that people have saved for projects",
            asks::saved,
        ),
        delete(
            "/platform/permission/{saved}",
            "permission.delete",
            "Take a saved permission back",
            asks::forget,
        ),
        post("/platform/ask/{ask}", "ask.reply", "Answer a call that waits", asks::reply),
        get(
            "/platform/session/{session}/ask",
            "session.ask.list",
            "List the calls of a session that wait for an answer",
            asks::of_session,
        ),
        get(
            "/project/{project}/session/{session}/ask",
            "project.session.ask.list",
            "List the calls of a session that wait for an answer",
            asks::of_session,
        ),
        post(
            "/project/{project}/session/{session}/permission/{ask}",
            "project.session.permission.reply",
            "Answer a call that waits for a permission",
            asks::reply,
        ),
        get(
            "/platform/session",
            "session.list",
            "List all sessions, newest first",
            platform::sessions,
        ),
        get("/platform/session/{session}", "session.get", "Show a session", sessions::show),
        get(
            "/platform/session/{session}/repository",
            "session.repository",
            "Show a session's repository, and how far its workspace is",
            repository::show,
        ),
        post(
            "/platform/repository",
            "repository.name",
            "Name a repository of one's own machine, and learn which of its commits are here",
            sent::name,
        ),
        post("/platform/upload", "upload.create", "Send a pack of git objects", sent::upload),
        get(
            "/platform/session/{session}/patch",
            "session.patch",
            "Write a session's work as one patch",
            repository::patch,
        ),
        get(
            "/platform/session/{session}/bundle",
            "session.bundle",
            "Write a session's commits, and what is not committed, as a git bundle",
            repository::bundle,
        ),
        get(
            "/platform/session/{session}/export",
            "session.export",
            "Write a session for another service: lines of JSON with its log, files and requests",
            export::show,
        ),
        post(
            "/platform/session/import",
            "session.import",
            "Make a session of what an export wrote, here or with the released client",
            import::take,
        ),
        get(
            "/platform/session/{session}/message",
            "session.message.list",
            "List the messages of a session, oldest first",
            platform::messages,
        ),
        post(
            "/platform/session/{session}/message",
            "session.prompt",
            "Admit a prompt, and answer at once",
            platform::post_message,
        ),
        get(
            "/platform/session/{session}/log",
            "session.log",
            "Read a session's log, or follow it as a stream",
            platform::log,
        ),
        post(
            "/platform/session/{session}/abort",
            "session.abort",
            "Interrupt what the session does",
            platform::abort,
        ),
        post(
            "/platform/session/{session}/rebuild",
            "session.rebuild",
            "Fold a session's rows anew from its log, or only compare",
            platform::rebuild,
        ),
        get(
            "/platform/explain/{id}",
            "explain.get",
            "Rebuild the request of an attempt or turn, and prove it by its hash",
            explain::show,
        ),
        get(
            "/platform/check",
            "check.run",
            "List broken invariants of the stored rows",
            platform::check,
        ),
        get(
            "/platform/instructions",
            "instructions.get",
            "Show the organisation's instructions",
            instructions::show,
        ),
        put(
            "/platform/instructions",
            "instructions.set",
            "Set the organisation's instructions; an empty text removes them",
            instructions::set,
        ),
        get(
            "/platform/settings",
            "settings.get",
            "Show the organisation's settings, with remarks",
            settings::show,
        ),
        put(
            "/platform/settings",
            "settings.set",
            "Set the organisation's settings; an empty text removes them",
            settings::set,
        ),
        get(
            "/platform/model",
            "model.list",
            "List the models that may be used, with limits and prices",
            models::list,
        ),
        get(
            "/platform/provider",
            "provider.list",
            "List the settings of model providers",
            providers::list,
        ),
        get(
            "/platform/provider/{provider}",
            "provider.get",
            "Show the settings of a model provider",
            providers::show,
        ),
        put(
            "/platform/provider/{provider}",
            "provider.set",
            "Set a model provider up; `*` stands for all",
            providers::set,
        ),
        delete(
            "/platform/provider/{provider}",
            "provider.delete",
            "Forget the settings of a model provider",
            providers::remove,
        ),
        get(
            "/platform/credential",
            "credential.list",
            "List credentials, without their secrets",
            credentials::list,
        ),
        post(
            "/platform/credential",
            "credential.create",
            "Keep a credential for a model provider",
            credentials::add,
        ),
        patch(
            "/platform/credential/{credential}",
            "credential.change",
            "Change a credential",
            credentials::change,
        ),
        delete(
            "/platform/credential/{credential}",
            "credential.delete",
            "Forget a credential",
            credentials::remove,
        ),
        post(
            "/platform/oauth/{provider}",
            "oauth.begin",
            "Begin a sign-in at a model provider",
            oauth::begin,
        ),
        get(
            "/platform/oauth/{provider}/{attempt}",
            "oauth.get",
            "Show how far a sign-in is",
            oauth::show,
        ),
        delete(
            "/platform/oauth/{provider}/{attempt}",
            "oauth.delete",
            "Give a sign-in up",
            oauth::remove,
        ),
        post(
            "/platform/oauth/{provider}/{attempt}/complete",
            "oauth.complete",
            "Complete a sign-in with what the browser came back with",
            oauth::complete,
        ),
        patch(
            "/project/{project}/session/{session}",
            "project.session.change",
            "Change a session: its title, its metadata, whether it is archived",
            sessions::change,
        ),
        patch(
            "/platform/session/{session}",
            "session.change",
            "Change a session: its title, its metadata, whether it is archived",
            sessions::change,
        ),
        delete(
            "/platform/session/{session}",
            "session.delete",
            "Delete a session and all below it, with their logs",
            sessions::remove,
        ),
        get(
            "/project/{project}/session/{session}/children",
            "project.session.children",
            "List the sessions below this one",
            tree::children,
        ),
        get(
            "/platform/session/{session}/children",
            "session.children",
            "List the sessions below this one",
            tree::children,
        ),
        get(
            "/project/{project}/session/{session}/usage",
            "project.session.usage",
            "Count tokens and costs of a session and of its tree",
            tree::usage,
        ),
        get(
            "/platform/session/{session}/usage",
            "session.usage",
            "Count tokens and costs of a session and of its tree",
            tree::usage,
        ),
        post(
            "/project/{project}/session/{session}/compact",
            "project.session.compact",
            "Ask for a compaction",
            inbox::compact,
        ),
        post(
            "/platform/session/{session}/compact",
            "session.compact",
            "Ask for a compaction",
            inbox::compact,
        ),
        post(
            "/project/{project}/session/{session}/synthetic",
            "project.session.synthetic",
            "Admit a text that no user wrote",
            inbox::synthetic,
        ),
        post(
            "/platform/session/{session}/synthetic",
            "session.synthetic",
            "Admit a text that no user wrote",
            inbox::synthetic,
        ),
        post(
            "/project/{project}/session/{session}/resume",
            "project.session.resume",
            "Wake a session for what waits in its inbox",
            inbox::resume,
        ),
        post(
            "/platform/session/{session}/resume",
            "session.resume",
            "Wake a session for what waits in its inbox",
            inbox::resume,
        ),
        post(
            "/project/{project}/session/{session}/wait",
            "project.session.wait",
            "Wait until a session is idle",
            wait::wait,
        ),
        post(
            "/platform/session/{session}/wait",
            "session.wait",
            "Wait until a session is idle",
            wait::wait,
        ),
        get(
            "/project/{project}/session/{session}/inbox",
            "project.session.inbox.list",
            "List the inputs that wait",
            inbox::list,
        ),
        get(
            "/platform/session/{session}/inbox",
            "session.inbox.list",
            "List the inputs that wait",
            inbox::list,
        ),
        patch(
            "/project/{project}/session/{session}/inbox/{message}",
            "project.session.inbox.change",
            "Change how a waiting input is delivered",
            inbox::change,
        ),
        patch(
            "/platform/session/{session}/inbox/{message}",
            "session.inbox.change",
            "Change how a waiting input is delivered",
            inbox::change,
        ),
        delete(
            "/project/{project}/session/{session}/inbox/{message}",
            "project.session.inbox.cancel",
            "Take a waiting input back",
            inbox::cancel,
        ),
        delete(
            "/platform/session/{session}/inbox/{message}",
            "session.inbox.cancel",
            "Take a waiting input back",
            inbox::cancel,
        ),
        get(
            "/project/{project}/session/{session}/context",
            "project.session.context.list",
            "List the context entries of a session",
            entries::list,
        ),
        get(
            "/platform/session/{session}/context",
            "session.context.list",
            "List the context entries of a session",
            entries::list,
        ),
        get(
            "/project/{project}/session/{session}/context/{key}",
            "project.session.context.get",
            "Show a context entry",
            entries::show,
        ),
        get(
            "/platform/session/{session}/context/{key}",
            "session.context.get",
            "Show a context entry",
            entries::show,
        ),
        put(
            "/project/{project}/session/{session}/context/{key}",
            "project.session.context.set",
            "Set a context entry to any JSON",
            entries::set,
        ),
        put(
            "/platform/session/{session}/context/{key}",
            "session.context.set",
            "Set a context entry to any JSON",
            entries::set,
        ),
        delete(
            "/project/{project}/session/{session}/context/{key}",
            "project.session.context.delete",
            "Remove a context entry",
            entries::remove,
        ),
        delete(
            "/platform/session/{session}/context/{key}",
            "session.context.delete",
            "Remove a context entry",
            entries::remove,
        ),
        post(
            "/project/{project}/session/{session}/fork",
            "project.session.fork",
            "Begin a session with a copy of this one's conversation",
            fork::fork,
        ),
        post(
            "/platform/session/{session}/fork",
            "session.fork",
            "Begin a session with a copy of this one's conversation",
            fork::fork,
        ),
        post(
            "/project/{project}/session/{session}/move",
            "project.session.move",
            "Go on in another directory",
            moves::post,
        ),
        post(
            "/platform/session/{session}/move",
            "session.move",
            "Go on in another directory",
            moves::post,
        ),
        post(
            "/project/{project}/session/{session}/revert",
            "project.session.revert",
            "Go back to before a message",
            reverts::revert,
        ),
        post(
            "/platform/session/{session}/revert",
            "session.revert",
            "Go back to before a message",
            reverts::revert,
        ),
        post(
            "/project/{project}/session/{session}/revert/commit",
            "project.session.revert.commit",
            "Make a revert final",
            reverts::commit,
        ),
        post(
            "/platform/session/{session}/revert/commit",
            "session.revert.commit",
            "Make a revert final",
            reverts::commit,
        ),
        post(
            "/project/{project}/session/{session}/unrevert",
            "project.session.unrevert",
            "Undo a revert",
            reverts::unrevert,
        ),
        post(
            "/platform/session/{session}/unrevert",
            "session.unrevert",
            "Undo a revert",
            reverts::unrevert,
        ),
        get(
            "/project/{project}/session/{session}/diff",
            "project.session.diff",
            "Show the changes of files",
            diff::show,
        ),
        get(
            "/platform/session/{session}/diff",
            "session.diff",
            "Show the changes of files",
            diff::show,
        ),
    ]
}

macro_rules! method {
    ($name:ident, $method:ident) => {
        fn $name<H, T, A>(
            path: &'static str,
            id: &'static str,
            summary: &'static str,
            handler: H,
        ) -> Route
        where
            H: Handler<T, ApiState> + Typed<A>,
            T: 'static,
        {
            Route::told(Method::$method, path, (id, summary), handler)
        }
    };
}

method!(get, GET);
method!(post, POST);
method!(put, PUT);
method!(patch, PATCH);
method!(delete, DELETE);
