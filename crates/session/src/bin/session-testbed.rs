//! The supervisor of tool processes, for this crate's tests.

fn main() -> std::process::ExitCode {
    sandbox::supervisor::main(std::env::args_os().skip(1))
}
