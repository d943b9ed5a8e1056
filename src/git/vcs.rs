//! TEMP
use crate::config::{Config, ProjectPaths};
use crate::domain::ids::SessionId;
use crate::messages::repo::TreeNow;
/// TEMP
#[derive(Debug)]
pub enum Vcs {
    /// T
    Unopened,
    /// T
    Folder(std::path::PathBuf),
}
impl Vcs {
    /// T
    pub fn open(&mut self, paths: &ProjectPaths, _: &Config) -> Option<String> {
        if matches!(self, Vcs::Unopened) {
            *self = Vcs::Folder(paths.root.clone());
            Some("TEMP".into())
        } else {
            None
        }
    }
    /// T
    pub fn snapshot(&mut self) -> Result<TreeNow, String> {
        let Vcs::Folder(root) = self else { return Err("".into()) };
        let mut s = String::new();
        for e in std::fs::read_dir(root).unwrap().flatten() {
            let m = e.metadata().unwrap();
            if m.is_file() {
                s += &format!("{:?}{:?}{}", e.path(), m.modified().unwrap(), m.len());
            }
        }
        Ok(TreeNow { tree: Some(format!("{:08x}", crc32fast::hash(s.as_bytes()))), git: false })
    }
    /// T
    pub fn keep(&mut self, _: SessionId, _: u64, _: &str, _: &str, _: jiff::Timestamp) -> Result<(), String> {
        Ok(())
    }
}
