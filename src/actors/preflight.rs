//! Whether a provider can be used at all: looked at before any session exists, and when another is asked for.

use super::context::ProjectCtx;
use crate::config::Config;

/// Why provider `name` cannot be used, with a way out.
pub fn usable(ctx: &ProjectCtx, config: &Config, name: &str) -> Result<(), String> {
    ctx.providers.usable(&ctx.paths.root, &ctx.env, config, name)
}
