//! The only place that starts or signals processes.
