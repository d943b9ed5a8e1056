//! Project: supervises everything of one project.

/// What Project receives.
#[derive(Debug)]
pub enum ProjectMsg {
    /// Itself, after a back-off: start this child again.
    Restart {
        /// Its place in the list of children.
        child: usize,
    },
    /// Session: the run is over with this exit code.
    Ended(u8),
}
