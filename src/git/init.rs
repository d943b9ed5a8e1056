//! Making a repository, and keeping `.longhaul/` out of one.

use std::path::Path;
use std::sync::Arc;

use git2::Repository;

use super::{Durability, Environment, Opening, Program, Repo};

/// Makes `folder` a repository, unless it is in one.
///
/// # Errors
/// libgit2's, in words.
pub fn init(folder: &Path, environment: Environment) -> Result<bool, String> {
    match Repo::open_with(folder, &Arc::new(Program::new(environment)), Durability::default()) {
        Opening::NoRepository => Repository::init(folder).map(|_| true).map_err(|e| e.message().to_owned()),
        Opening::Git(_) | Opening::Unusable { .. } => Ok(false),
    }
}

/// Makes git ignore the project's `.longhaul/`, where there is a repository.
///
/// # Errors
/// Why it could not, in words.
pub fn exclude(folder: &Path, environment: Environment) -> Result<(), String> {
    match Repo::open_with(folder, &Arc::new(Program::new(environment)), Durability::default()) {
        Opening::Git(repo) => repo.exclude_own_folder().map(|_| ()).map_err(|error| error.to_string()),
        Opening::NoRepository => Ok(()),
        Opening::Unusable { reason, .. } => Err(reason),
    }
}
