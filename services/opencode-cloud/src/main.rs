//! The executable of OpenCode Cloud. Its code is in the library.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    // Before anything else of the process is set up: a supervisor starts as often as a tool does, and a launcher has one
    // thread and no secret.
    match args.nth(1) {
        Some(word) if word == opencode_cloud::TOOL_SUPERVISOR => sandbox::supervisor::main(args),
        Some(word) if word == opencode_cloud::TOOL_LAUNCHER => sandbox::launcher::main(),
        Some(_) | None => opencode_cloud::command_line::main(),
    }
}
