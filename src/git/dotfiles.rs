//! The ignore and attribute files that the walk meets, read when they have changed.

use std::ffi::CStr;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, statat};

use super::content::Conversion;
use super::ignore::Rules;
use super::index::{Cached, Folder};
use super::listing::{Kind, Listing, open_file};
use super::scan::Scan;
use super::stat::Stat;
use super::warning::Why;

/// Files beyond this size are not read further.
const TEXT_MAX: u64 = 4 << 20;

// === impl Scan ===

impl Scan<'_> {
    /// The folder's ignore rules, read again when the file changed. `None`: there are none.
    pub(super) fn rules(
        &mut self,
        fd: BorrowedFd<'_>,
        folder: &mut Folder,
        listing: &Listing,
    ) -> Option<Arc<Rules>> {
        // git does not follow a link here.
        if listing.ignore_file != Some(Kind::File) {
            folder.rules = None;
            return None;
        }
        let stat = Stat::from(&statat(fd, c".gitignore", AtFlags::SYMLINK_NOFOLLOW).ok()?);
        match &folder.rules {
            Some(cached) if !cached.stale && cached.stat.is_same(&stat) => {}
            _ => {
                let text = match read_text(fd, c".gitignore") {
                    Ok(text) => text,
                    Err(error) => {
                        self.warn(Why::Unreadable(format!(".gitignore: {error}")));
                        Vec::new()
                    }
                };
                let value = Arc::new(Rules::parse(&text));
                folder.rules = Some(Cached { stat, stale: stat.is_racy(self.now), value });
            }
        }
        folder.rules.as_ref().map(|cached| Arc::clone(&cached.value)).filter(|rules| !rules.is_empty())
    }

    /// Notices a new, changed or removed `.gitattributes`, before a file that it is about is read.
    pub(super) fn attributes(&mut self, fd: BorrowedFd<'_>, folder: &mut Folder, listing: &Listing) {
        if listing.attribute_file != Some(Kind::File) {
            if folder.attributes.take().is_some() {
                self.maker.converter.forget();
                folder.doubt_conversions();
            }
            return;
        }
        let Ok(stat) = statat(fd, c".gitattributes", AtFlags::SYMLINK_NOFOLLOW) else { return };
        let stat = Stat::from(&stat);
        if folder.attributes.as_ref().is_some_and(|known| !known.stale && known.stat.is_same(&stat)) {
            return;
        }
        folder.attributes = Some(Cached { stat, stale: stat.is_racy(self.now), value: () });
        self.maker.converter.forget();
        folder.doubt_conversions();
        let asked =
            read_text(fd, c".gitattributes").map_or(Conversion::Drivers, |t| Conversion::asked_by(&t));
        self.maker.conversion = self.maker.conversion.max(asked);
    }
}

fn read_text(folder: BorrowedFd<'_>, name: &CStr) -> io::Result<Vec<u8>> {
    let file = std::fs::File::from(open_file(folder, name)?);
    let mut text = Vec::new();
    file.take(TEXT_MAX).read_to_end(&mut text)?;
    Ok(text)
}
