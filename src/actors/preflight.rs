//! Whether a provider can be used at all: looked at before any session exists, and when another is asked for.

use super::context::ProjectCtx;
use crate::config::Config;

/// Why provider `name` cannot be used under these settings, with a way out.
pub fn usable(ctx: &ProjectCtx, config: &Config, name: &str) -> Result<(), String> {
    let env = ctx.provider_env(config, name);
    ctx.providers.usable(name, &ctx.paths.root, &env).map_err(|error| error.to_string())
}
