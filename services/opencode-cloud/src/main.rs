//! The executable of OpenCode Cloud. Its code is in the library.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    // Checked before the process is set up, because every tool call starts a supervisor.
    if args.nth(1).is_some_and(|word| word == opencode_cloud::TOOL_SUPERVISOR) {
        return sandbox::supervisor::main(args);
    }
    opencode_cloud::cli::main()
}
