//! The executable of OpenCode Cloud. All of it is in the library beside this file.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    // Before anything else of the process is set up: a supervisor starts as often as a tool does.
    if args.nth(1).is_some_and(|word| word == opencode_cloud::TOOL_SUPERVISOR) {
        return sandbox::supervisor::main(args);
    }
    opencode_cloud::cli::main()
}
