//! The executable of OpenCode Cloud. Its code is in the library.

mod allocator;

use std::process::ExitCode;

fn main() -> ExitCode {
    allocator::return_memory_at_once();
    let mut args = std::env::args_os();
    // Before anything else of the process is set up: a supervisor starts as often as a tool does, and a launcher has one
    // thread and no secret.
    match args.nth(1) {
        Some(word) if word == opencode_cloud::TOOL_SUPERVISOR => sandbox::supervisor::main(args),
        Some(word) if word == opencode_cloud::TOOL_LAUNCHER => sandbox::launcher::main(),
        Some(_) | None => opencode_cloud::command_line::main(),
    }
}
