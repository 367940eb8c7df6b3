//! The service's own routes: FEAT-0006's under `/project`, what operators and our CLI use under
//! `/platform`, and the two probes.

mod admit;
mod explain;
mod health;
mod log;
mod messages;
mod platform;
mod projects;
mod sessions;

pub(crate) use admit::{AdmitRequest, admit};
pub(crate) use messages::{MAX_MESSAGES, context, one, prompt_row, transcript};
pub(crate) use projects::ProjectView;
pub(crate) use sessions::{
    Limit, MAX_SESSIONS, NewSessionRequest, create, delete_session, home, interrupt, relearn,
};

use crate::route::Route;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/healthz", health::healthz),
        Route::get("/readyz", health::readyz),
        Route::get("/project", projects::list),
        Route::post("/project", projects::init),
        Route::post("/project/init", projects::init),
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
        Route::get("/platform/session/{session}", platform::session),
        Route::get("/platform/session/{session}/message", platform::messages),
        Route::post("/platform/session/{session}/message", platform::post_message),
        Route::get("/platform/session/{session}/log", platform::log),
        Route::post("/platform/session/{session}/abort", platform::abort),
        Route::post("/platform/session/{session}/rebuild", platform::rebuild),
        Route::get("/platform/explain/{id}", explain::show),
        Route::get("/platform/check", platform::check),
    ]
}
