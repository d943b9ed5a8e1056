//! Arguments in, calls to the core, printing out.
