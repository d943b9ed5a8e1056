//! The `longhaul` program: parse, dispatch, exit code.

fn main() {}
