//! The `longhaul` program: parse, dispatch, exit code.

use longhaul::process;

fn main() {
    // First of all, before any thread: the keeper forks and must stay small.
    if process::is_keeper_invocation() {
        process::keeper_main()
    }
}
