//! Settings: loading, layering, validation, watching.
