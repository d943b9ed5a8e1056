//! The state database, and the journal on disk.
