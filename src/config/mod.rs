//! Settings: loading, layering, validation, watching.
//!
//! Raw → checked: each layer is read into values by dotted key with where they stand ([`Settings`]), then all
//! together are turned into one typed [`Config`], once. The rest of the program sees only that.

mod atomic;
mod checked;
mod diff;
mod edit;
mod environment;
mod error;
mod keys;
mod layer;
mod load;
mod project;
mod scalar;
mod secret;
mod settings;
#[cfg(test)]
mod tests;
mod watch;

pub use atomic::{IfThere, UNFINISHED, write_atomic};
pub use diff::{Change, as_json, diff, shown};
pub use edit::{Edited, set};
pub use environment::Environment;
pub use error::{ConfigError, Origin, Place, Problem};
pub use keys::{KEYS, Liveness, is_key, liveness, suggest};
pub use layer::Setting;
pub use load::{DEFAULTS, Files, Loaded, Override, Settings, Sources, check_file, load, resolve};
pub use project::{DOT, Lookup, ProjectPaths};
pub use secret::masked;
pub use settings::*;
pub use watch::{Reloader, Reread};
