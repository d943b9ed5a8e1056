//! Host: the root of the tree.

/// What Host receives.
#[derive(Debug)]
pub enum HostMsg {
    /// Itself, after a back-off: start this child again.
    Restart {
        /// Its place in the list of children.
        child: usize,
    },
    /// Project: its run is over with this exit code.
    ProjectEnded(u8),
}
