//! The service's own routes: FEAT-0006's under `/project`, what operators and our CLI use under
//! `/platform`, and the two probes.

mod acted;
mod admit;
mod agents;
mod at;
mod blobs;
mod credentials;
mod diff;
mod entries;
mod explain;
mod fork;
mod health;
mod inbox;
mod instructions;
mod log;
mod messages;
mod models;
mod moves;
mod oauth;
mod platform;
mod projects;
mod providers;
mod reverts;
mod sessions;
mod tree;
mod wait;

pub(crate) use admit::{AdmitRequest, admit};
pub(crate) use agents::agents;
pub(crate) use at::At;
pub(crate) use diff::{DiffQuery, changes, diff, summaries};
pub(crate) use fork::fork;
pub(crate) use inbox::{CompactRequest, admit_compaction};
pub(crate) use messages::{MAX_MESSAGES, context, one, prompt_row, transcript};
pub(crate) use moves::{MoveRequest, asked};
pub(crate) use projects::ProjectView;
pub(crate) use reverts::{revert, unrevert};
pub(crate) use sessions::{
    Limit, MAX_SESSIONS, NewSessionRequest, change, create, home, interrupt, relearn, remove, show,
};
pub(crate) use tree::children;

use crate::route::Route;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/healthz", health::healthz),
        Route::get("/readyz", health::readyz),
        Route::get("/project", projects::list),
        Route::post("/project", projects::init),
        Route::post("/project/init", projects::init),
        Route::get("/project/{project}/agent", agents::of_project),
        Route::get("/project/{project}/session", sessions::list),
        Route::post("/project/{project}/session", sessions::create_route),
        Route::get("/project/{project}/session/{session}", sessions::show),
        Route::delete("/project/{project}/session/{session}", sessions::remove),
        Route::post("/project/{project}/session/{session}/abort", sessions::abort),
        Route::get("/project/{project}/session/{session}/message", messages::list),
        Route::post("/project/{project}/session/{session}/message", messages::post),
        Route::get("/project/{project}/session/{session}/message/{message}", messages::show),
        Route::get("/project/{project}/session/{session}/log", log::show),
        Route::get("/platform/session", platform::sessions),
        Route::get("/platform/session/{session}", sessions::show),
        Route::get("/platform/session/{session}/message", platform::messages),
        Route::post("/platform/session/{session}/message", platform::post_message),
        Route::get("/platform/session/{session}/log", platform::log),
        Route::post("/platform/session/{session}/abort", platform::abort),
        Route::post("/platform/session/{session}/rebuild", platform::rebuild),
        Route::get("/platform/explain/{id}", explain::show),
        Route::get("/platform/check", platform::check),
        Route::get("/platform/instructions", instructions::show),
        Route::put("/platform/instructions", instructions::set),
        Route::get("/platform/model", models::list),
        Route::get("/platform/provider", providers::list),
        Route::get("/platform/provider/{provider}", providers::show),
        Route::put("/platform/provider/{provider}", providers::set),
        Route::delete("/platform/provider/{provider}", providers::remove),
        Route::get("/platform/credential", credentials::list),
        Route::post("/platform/credential", credentials::add),
        Route::patch("/platform/credential/{credential}", credentials::change),
        Route::delete("/platform/credential/{credential}", credentials::remove),
        Route::post("/platform/oauth/{provider}", oauth::begin),
        Route::get("/platform/oauth/{provider}/{attempt}", oauth::show),
        Route::delete("/platform/oauth/{provider}/{attempt}", oauth::remove),
        Route::post("/platform/oauth/{provider}/{attempt}/complete", oauth::complete),
        // Of one session, below its project and alone.
        Route::patch("/project/{project}/session/{session}", sessions::change),
        Route::patch("/platform/session/{session}", sessions::change),
        Route::delete("/platform/session/{session}", sessions::remove),
        Route::get("/project/{project}/session/{session}/children", tree::children),
        Route::get("/platform/session/{session}/children", tree::children),
        Route::get("/project/{project}/session/{session}/usage", tree::usage),
        Route::get("/platform/session/{session}/usage", tree::usage),
        Route::post("/project/{project}/session/{session}/compact", inbox::compact),
        Route::post("/platform/session/{session}/compact", inbox::compact),
        Route::post("/project/{project}/session/{session}/synthetic", inbox::synthetic),
        Route::post("/platform/session/{session}/synthetic", inbox::synthetic),
        Route::post("/project/{project}/session/{session}/resume", inbox::resume),
        Route::post("/platform/session/{session}/resume", inbox::resume),
        Route::post("/project/{project}/session/{session}/wait", wait::wait),
        Route::post("/platform/session/{session}/wait", wait::wait),
        Route::get("/project/{project}/session/{session}/inbox", inbox::list),
        Route::get("/platform/session/{session}/inbox", inbox::list),
        Route::patch("/project/{project}/session/{session}/inbox/{message}", inbox::change),
        Route::patch("/platform/session/{session}/inbox/{message}", inbox::change),
        Route::delete("/project/{project}/session/{session}/inbox/{message}", inbox::cancel),
        Route::delete("/platform/session/{session}/inbox/{message}", inbox::cancel),
        Route::get("/project/{project}/session/{session}/context", entries::list),
        Route::get("/platform/session/{session}/context", entries::list),
        Route::get("/project/{project}/session/{session}/context/{key}", entries::show),
        Route::get("/platform/session/{session}/context/{key}", entries::show),
        Route::put("/project/{project}/session/{session}/context/{key}", entries::set),
        Route::put("/platform/session/{session}/context/{key}", entries::set),
        Route::delete("/project/{project}/session/{session}/context/{key}", entries::remove),
        Route::delete("/platform/session/{session}/context/{key}", entries::remove),
        Route::post("/project/{project}/session/{session}/fork", fork::fork),
        Route::post("/platform/session/{session}/fork", fork::fork),
        Route::post("/project/{project}/session/{session}/move", moves::post),
        Route::post("/platform/session/{session}/move", moves::post),
        Route::post("/project/{project}/session/{session}/revert", reverts::revert),
        Route::post("/platform/session/{session}/revert", reverts::revert),
        Route::post("/project/{project}/session/{session}/revert/commit", reverts::commit),
        Route::post("/platform/session/{session}/revert/commit", reverts::commit),
        Route::post("/project/{project}/session/{session}/unrevert", reverts::unrevert),
        Route::post("/platform/session/{session}/unrevert", reverts::unrevert),
        Route::get("/project/{project}/session/{session}/diff", diff::show),
        Route::get("/platform/session/{session}/diff", diff::show),
    ]
}
