//! Random work on random trees: each snapshot is the tree that `git add -A` gives.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::git::Repo;
use crate::git::testing::Sandbox;

/// What happens to attributes in a run.
#[derive(Clone, Copy, PartialEq)]
enum Attributes {
    None,
    LineEnds,
    Drivers,
}

struct World {
    sandbox: Sandbox,
    random: fastrand::Rng,
    attributes: Attributes,
    /// Seconds after an arbitrary moment, one for each file written.
    age: i64,
    /// What was done since the last comparison.
    log: Vec<String>,
}

/// In 2001.
const LONG_AGO: Duration = Duration::from_secs(1_000_000_000);
const NAMES: &[&[u8]] = &[
    b"a",
    b"b",
    b"c.txt",
    b"d.o",
    b"sub",
    b"sub.x",
    b"sub-",
    b"x y",
    "é".as_bytes(),
    b"\xff\xfe",
    b"n\nl",
    b"\"q\"",
];
const IGNORES: &[&str] =
    &["*.o\n", "sub/\n", "/a\n", "*\n!c.txt\n", "b\n!b\n", "x*\n", "", "sub/*\n!sub/a\n", "[ab]\n"];
const LINE_ENDS: &[&str] = &[
    "* text=auto\n",
    "*.txt text\n",
    "*.txt eol=crlf\n",
    "* -text\n",
    "*.o binary\na ident\n",
    "* text=auto eol=lf\n*.txt -text\n",
    "",
];
const DRIVERS: &[&str] =
    &["*.txt filter=up\n", "a filter=up text=auto\n", "*.txt filter=unknown\n", "* -filter\n"];
const CONTENTS: &[&str] = &[
    "",
    "one\n",
    "two\n",
    "one\r\ntwo\r\n",
    "one\r\ntwo\n",
    "lone\rcr",
    "$Id$ x",
    "$Id: old $\r\n",
    "bin\0\r\n",
];

impl World {
    fn new(seed: u64, attributes: Attributes) -> Self {
        let sandbox = Sandbox::new();
        if attributes == Attributes::Drivers {
            sandbox.git(&["config", "filter.up.clean", "tr a-z A-Z"]);
        }
        World { sandbox, random: fastrand::Rng::with_seed(seed), attributes, age: 0, log: Vec::new() }
    }

    fn name(&mut self) -> PathBuf {
        let name = *self.random.choice(NAMES.iter()).unwrap();
        PathBuf::from(std::ffi::OsStr::from_bytes(name))
    }

    /// A random path of the work tree, up to three deep.
    fn path(&mut self) -> PathBuf {
        let depth = self.random.usize(1..4);
        let relative: PathBuf = (0..depth).map(|_| self.name()).collect();
        self.sandbox.path().join(relative)
    }

    /// Makes room for something at `path`: files on the way become folders.
    fn clear(&self, path: &Path) {
        let top = self.sandbox.path();
        let mut above: Vec<_> = path.ancestors().skip(1).take_while(|p| *p != top).collect();
        above.reverse();
        for folder in above {
            if !fs::symlink_metadata(folder).is_ok_and(|meta| meta.is_dir()) {
                let _ = fs::remove_file(folder);
                fs::create_dir(folder).unwrap();
            }
        }
        let _ = fs::remove_dir_all(path);
        let _ = fs::remove_file(path);
    }

    fn content(&mut self) -> Vec<u8> {
        if self.random.u8(..) < 5 {
            // Large enough to be streamed.
            let byte = *self.random.choice(b"xyz\r\n").unwrap();
            return vec![byte; self.random.usize(300_000..400_000)];
        }
        let parts = self.random.usize(0..4);
        (0..parts).flat_map(|_| self.random.choice(CONTENTS).unwrap().bytes()).collect()
    }

    fn step(&mut self) {
        let path = self.path();
        let what = self.random.u8(0..24);
        self.log.push(format!("{what} {path:?}"));
        match what {
            0..8 => {
                self.clear(&path);
                fs::write(&path, self.content()).unwrap();
            }
            8 => {
                self.clear(&path);
                // Not to another name of the pool: git keeps what is behind a link that leads to itself.
                symlink(*self.random.choice(&["..", "nowhere", "../.."]).unwrap(), &path).unwrap();
            }
            9 | 10 => self.clear(&path),
            11 if path.is_file() => {
                let mode = self.random.choice([0o644, 0o755, 0o600, 0o711]).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                if self.attributes != Attributes::None {
                    // See `age`.
                    fs::File::open(&path)
                        .unwrap()
                        .set_modified(std::time::UNIX_EPOCH + LONG_AGO * 2)
                        .unwrap();
                }
            }
            12 => {
                let to = self.path();
                if fs::symlink_metadata(&path).is_ok() && !to.starts_with(&path) && !path.starts_with(&to) {
                    self.clear(&to);
                    let _ = fs::rename(&path, &to);
                }
            }
            13 => {
                let folder = path.parent().unwrap().to_owned();
                if folder.is_dir() {
                    let rules = *self.random.choice(IGNORES).unwrap();
                    fs::write(folder.join(".gitignore"), rules).unwrap();
                }
            }
            14 => self.attribute_step(path.parent().unwrap()),
            15 | 16 => drop(self.sandbox.git_with(&["add", "-A", "--ignore-errors"], &[], &[0, 1])),
            17 => drop(self.sandbox.git_with(
                &["add", "-f", "--ignore-errors", "--", path.to_str().unwrap_or(".")],
                &[],
                &[0, 1, 128],
            )),
            18 => drop(self.sandbox.git_with(&["commit", "-q", "-m", "x"], &[], &[0, 1])),
            19 => drop(self.sandbox.git_with(
                &["rm", "-q", "-r", "--cached", "--ignore-unmatch", "--", "a", "sub"],
                &[],
                &[0, 1, 128],
            )),
            20 => drop(self.sandbox.git_with(&["reset", "-q", "--hard"], &[], &[0, 1, 128])),
            21 => drop(self.sandbox.git_with(&["checkout", "-q", "-f", "HEAD~1"], &[], &[0, 1, 128])),
            22 => drop(self.sandbox.git_with(&["stash", "-q"], &[], &[0, 1, 128])),
            23 if self.random.u8(..) < 60 => {
                self.clear(&path);
                fs::create_dir(&path).unwrap();
                let folder = path.to_str().map(str::to_owned);
                if let Some(folder) = folder {
                    self.sandbox.git(&["init", "-q", &folder]);
                    if self.random.bool() {
                        let args = ["-C", &folder, "commit", "-q", "--allow-empty", "-m", "n"];
                        self.sandbox.git_raw(&args);
                    }
                }
            }
            _ => {}
        }
    }

    fn attribute_step(&mut self, folder: &Path) {
        let choices: Vec<&str> = match self.attributes {
            Attributes::None => return,
            Attributes::LineEnds => LINE_ENDS.to_vec(),
            Attributes::Drivers => [LINE_ENDS, DRIVERS].concat(),
        };
        if folder.is_dir() {
            let text = *self.random.choice(&choices).unwrap();
            self.log.push(format!("attributes {text:?}"));
            fs::write(folder.join(".gitattributes"), text).unwrap();
        }
    }

    /// Gives every file that was written since the last time a modification time of its own, far in the past. With
    /// its resolution of a second git reads again whatever is as young as its index, and then by the attributes of
    /// now; which files these are would be left to chance.
    fn age(&mut self, folder: &Path) {
        use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap).filter(|e| e.file_name() != ".git") {
            let meta = fs::symlink_metadata(entry.path()).unwrap();
            if meta.is_dir() {
                self.age(&entry.path());
            } else if meta.mtime() > LONG_AGO.as_secs() as i64 * 3 / 2 {
                self.age += 1;
                let time = Timespec { tv_sec: LONG_AGO.as_secs() as i64 + self.age, tv_nsec: 5 };
                let times = Timestamps { last_access: time, last_modification: time };
                utimensat(CWD, entry.path(), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
            }
        }
    }

    fn compare(&mut self, repo: &mut Repo, seed: u64, round: usize) {
        let snapshot = repo.snapshot().unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
        let expected = self.sandbox.oracle();
        if snapshot.tree.to_string() != expected {
            let _ = repo.changes(snapshot.tree, expected.parse().unwrap(), 1);
            let difference = self.sandbox.git(&["diff-tree", "-r", &snapshot.tree.to_string(), &expected]);
            panic!("seed {seed}, round {round}: ours → git's:\n{difference}\nafter {:#?}", self.log);
        }
        self.log.clear();
    }
}

fn run(seeds: std::ops::Range<u64>, rounds: usize, attributes: Attributes) {
    for seed in seeds {
        let mut world = World::new(seed, attributes);
        let mut repo = world.sandbox.open();
        for round in 0..rounds {
            for _ in 0..world.random.usize(1..10) {
                world.step();
                if attributes != Attributes::None {
                    world.age(&world.sandbox.path());
                }
            }
            if world.random.u8(..) < 25 {
                // A restart, now and then with our index file lost.
                if world.random.bool() {
                    let _ = fs::remove_file(world.sandbox.path().join(".git/longhaul/index"));
                }
                repo = world.sandbox.open();
            }
            world.compare(&mut repo, seed, round);
        }
    }
}

#[test]
fn without_attributes() {
    run(0..4, 40, Attributes::None);
}

#[test]
fn with_line_ends() {
    run(100..104, 30, Attributes::LineEnds);
}

#[test]
fn with_filters() {
    run(200..203, 25, Attributes::Drivers);
}
