//! The dialect of released OpenCode clients: `opencode run --attach`, the SDK, and most of `attach`.
//! Same store calls as the native routes, where the request is the same also the same handler; other shapes; where that contract says "this process", we
//! answer for the cluster.

mod answer;
mod catalog;
mod config;
mod events;
mod feed;
mod files;
mod held;
mod listing;
mod messages;
mod place;
mod sessions;
mod summarize;
mod told;
mod translate;

pub(crate) use catalog::usd;
pub(crate) use feed::Feeds;

use crate::native;
use crate::route::Route;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/global/health", config::health),
        Route::get("/global/event", events::global),
        Route::get("/event", events::show),
        Route::get("/config", config::config),
        Route::get("/config/providers", config::config_providers),
        Route::get("/provider", config::providers),
        Route::get("/api/model", listing::models),
        Route::get("/api/provider", listing::providers),
        Route::get("/agent", native::agents),
        Route::get("/path", config::path),
        Route::get("/project/current", config::current_project),
        Route::get("/session", sessions::list),
        Route::post("/session", sessions::create_route),
        Route::get("/session/status", sessions::status),
        Route::get("/session/{session}", native::show),
        Route::delete("/session/{session}", native::remove),
        Route::patch("/session/{session}", native::change),
        Route::get("/session/{session}/children", native::children),
        Route::post("/session/{session}/summarize", summarize::post),
        Route::post("/session/{session}/abort", sessions::abort),
        Route::post("/session/{session}/fork", native::fork),
        Route::post("/session/{session}/revert", native::revert),
        Route::post("/session/{session}/unrevert", native::unrevert),
        Route::get("/session/{session}/diff", files::diff_route),
        Route::post("/experimental/control-plane/move-session", files::move_route),
        Route::get("/session/{session}/message", messages::list),
        Route::post("/session/{session}/message", messages::post),
        Route::get("/session/{session}/message/{message}", messages::show),
        Route::post("/session/{session}/prompt_async", messages::post_async),
    ]
}
