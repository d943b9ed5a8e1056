//! Names of git objects, independent of the library that made them: SHA-1 or SHA-256.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of an object, written as 40 (SHA-1) or 64 (SHA-256) hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    bytes: [u8; 32],
    /// Bytes in use: 20 or 32.
    len: u8,
}

/// The text is not 40 or 64 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read '{0}' as the name of a git object: it must be 40 or 64 hex digits")]
pub struct InvalidObjectId(String);

macro_rules! typed {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub ObjectId);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidObjectId;
            fn from_str(s: &str) -> Result<Self, Self::Err> {
                s.parse().map($name)
            }
        }

        impl From<git2::Oid> for $name {
            fn from(oid: git2::Oid) -> Self {
                $name(oid.into())
            }
        }
    };
}

typed!(
    /// The name of a tree: two equal ones mean byte for byte the same files.
    TreeId
);
typed!(
    /// The name of a commit.
    CommitId
);

// === impl ObjectId ===

impl ObjectId {
    /// The raw bytes: 20 or 32.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// As libgit2's type. Fails for SHA-256, which our libgit2 is built without.
    pub(super) fn oid(&self) -> Result<git2::Oid, git2::Error> {
        git2::Oid::from_bytes(self.as_bytes())
    }
}

impl From<git2::Oid> for ObjectId {
    fn from(oid: git2::Oid) -> Self {
        let mut bytes = [0; 32];
        let from = oid.as_bytes();
        bytes[..from.len()].copy_from_slice(from);
        ObjectId { bytes, len: from.len() as u8 }
    }
}

impl FromStr for ObjectId {
    type Err = InvalidObjectId;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidObjectId(s.chars().take(80).collect());
        if !matches!(s.len(), 40 | 64) || !s.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(invalid());
        }
        let mut id = ObjectId { bytes: [0; 32], len: (s.len() / 2) as u8 };
        for (byte, pair) in id.bytes.iter_mut().zip(s.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| invalid())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| invalid())?;
        }
        Ok(id)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ObjectId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ObjectId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_both_lengths() {
        for text in ["4b825dc642cb6eb9a060e54bf8d69288fbee4904".to_owned(), "0f".repeat(32)] {
            let id: TreeId = text.parse().unwrap();
            assert_eq!(id.to_string(), text);
            assert_eq!(serde_json::to_string(&id).unwrap(), format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<TreeId>(&format!("\"{text}\"")).unwrap(), id);
        }
    }

    #[test]
    fn refuses_other_text() {
        for text in ["", "4b825dc6", &"g".repeat(40), &"+1".repeat(20)] {
            assert!(text.parse::<ObjectId>().is_err(), "{text}");
        }
    }
}
