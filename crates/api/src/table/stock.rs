//! The routes of released OpenCode clients.

use super::route::Route;
use crate::surface::native::{agents, fork, reverts, sessions as native, tree};
use crate::surface::stock::{config, events, files, listing, messages, sessions, summarize};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/global/health", config::health),
        Route::get("/global/event", events::global),
        Route::get("/event", events::show),
        Route::get("/config", config::config),
        Route::get("/config/providers", config::config_providers),
        Route::get("/provider", config::providers),
        Route::get("/api/model", listing::models),
        Route::get("/api/provider", listing::providers),
        Route::get("/agent", agents::agents),
        Route::get("/path", config::path),
        Route::get("/project/current", config::current_project),
        Route::get("/session", sessions::list),
        Route::post("/session", sessions::create_route),
        Route::get("/session/status", sessions::status),
        Route::get("/session/{session}", native::show),
        Route::delete("/session/{session}", native::remove),
        Route::patch("/session/{session}", native::change),
        Route::get("/session/{session}/children", tree::children),
        Route::post("/session/{session}/summarize", summarize::post),
        Route::post("/session/{session}/abort", sessions::abort),
        Route::post("/session/{session}/fork", fork::fork),
        Route::post("/session/{session}/revert", reverts::revert),
        Route::post("/session/{session}/unrevert", reverts::unrevert),
        Route::get("/session/{session}/diff", files::diff_route),
        Route::post("/experimental/control-plane/move-session", files::move_route),
        Route::get("/session/{session}/message", messages::list),
        Route::post("/session/{session}/message", messages::post),
        Route::get("/session/{session}/message/{message}", messages::show),
        Route::post("/session/{session}/prompt_async", messages::post_async),
    ]
}
