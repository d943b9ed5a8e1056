//! Git: repository, capabilities, checkpoints.
