//! Rows EC of the acceptance list: odd projects and odd agents.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use testkit::{World, words};

#[test]
fn ec_001_paths_may_hold_anything() {
    let names: [&[u8]; 8] = [
        "àéîõü ñ".as_bytes(),
        b"two  blanks and a\ttab",
        b"quotes ' and \" and `x` $HOME",
        b"new\nline",
        "🦀 crab".as_bytes(),
        "right\u{200f}to\u{202e}left".as_bytes(),
        b"not \xff\xfe utf-8",
        b"-rf --help",
    ];
    for name in names {
        let world = World::named(OsStr::from_bytes(name));
        world.init_git();
        for inner in names {
            fs::write(world.project().join(OsStr::from_bytes(inner)), "text\n").unwrap();
        }
        fs::write(world.project().join("spéc ☂.md"), "# Goal\n\nBuild it.\n").unwrap();
        let mut args = world.run_agent("change=work.txt say=ok", "--max-iterations 1");
        args.push("spéc ☂.md".into());
        let ended = world.run(args).ok();
        let checkpoint = ended.events_of("checkpoint_created").pop().unwrap();
        let listed = world
            .program("git")
            .args(["ls-tree", "-z", "--name-only", checkpoint.text("tree")])
            .output()
            .unwrap();
        for inner in names {
            let there = listed.stdout.split(|b| *b == 0).any(|n| n == inner);
            assert!(there, "{} in {}", inner.escape_ascii(), name.escape_ascii());
        }
        let status = world.status();
        assert_eq!(status["session"]["state"], "finished");
        assert_eq!(world.agent_log().calls.len(), 1);
        for args in [
            "say hello",
            "pause",
            "resume",
            "doctor --json",
            "events --json",
            "config show --json",
            "gates --json",
        ] {
            let ended = world.run(words(args));
            assert!(ended.code().is_some_and(|c| c != 101), "{args} in {}: {ended:?}", name.escape_ascii());
        }
        let _ = fs::remove_file(world.state().join("PAUSE"));
    }
}

/// A spec of at least `size` characters: sections, code fences and characters of several bytes.
fn big_spec(size: usize) -> String {
    let mut text = String::from("# Großes Ziel\n\nAlles bauen.\n\n");
    let mut n = 0;
    while text.len() < size {
        n += 1;
        text += &format!(
            "## Section {n}\n\nÄpfel, Öl und 日本語のテキスト.\n\n```rust\nfn part_{n}() {{}}\n```\n\n- item {n}\n\n"
        );
    }
    text
}

#[test]
fn ec_002_a_huge_spec_is_cut_with_care() {
    for (size, tokens) in [(100_000, 5_000u64), (1_000_000, 50_000), (5_000_000, 50_000)] {
        let world = World::new();
        let spec = big_spec(size);
        world.write("SPEC.md", &spec);
        if tokens != 50_000 {
            world.config(&format!("spec.max_tokens = {tokens}\n"));
        }
        let ended = world.run(world.run_agent("say=ok", "SPEC.md --max-iterations 1")).ok();
        let cut = ended.event("spec_truncated");
        assert_eq!(cut.data("from_chars"), spec.chars().count());
        let kept = cut.data("to_chars").as_u64().unwrap();
        assert!(kept <= tokens * 4, "a quarter of the window is {tokens} tokens: {kept} characters");
        assert!(kept >= tokens, "and that much is used: {kept}");
        let prompt = world.prompt(1);
        assert!(prompt.contains("SPEC.md"), "the path to the whole file is there");
        assert!(
            prompt.contains("Großes Ziel") && prompt.contains("Section 1\n"),
            "outline and head are there"
        );
        let fences = prompt.lines().filter(|l| l.starts_with("```")).count();
        assert_eq!(fences % 2, 0, "no code fence is cut open");
        assert!(!prompt.contains('\u{fffd}'), "no character is cut");
        assert!(prompt.len() < usize::try_from(tokens).unwrap() * 6 + 20_000, "{}", prompt.len());
    }
}

fn complexity(world: &World, spec: &str) -> String {
    world.write("SPEC.md", spec);
    let ended = world.run(world.run_agent("say=ok", "SPEC.md --max-iterations 1 --fresh")).ok();
    let class = ended.event("session_started").text("complexity").to_owned();
    assert_eq!(world.status()["session"]["complexity"], class.as_str());
    class
}

fn source_files(world: &World, count: usize) {
    for n in 0..count {
        world.write(&format!("src/d{}/f{n}.rs", n / 500), "fn x() {}\n");
    }
}

#[test]
fn ec_003_classes_follow_their_limits() {
    let world = World::new();
    let short = "# Goal\n\nMake a thing.\n";
    assert_eq!(complexity(&world, short), "simple");
    source_files(&world, 50);
    assert_eq!(complexity(&world, short), "simple", "at most 50 files");
    // The title is two words.
    assert_eq!(
        complexity(&world, &format!("# Goal\n\n{}\n", "word ".repeat(197))),
        "simple",
        "under 200 words"
    );
    assert_eq!(
        complexity(&world, &format!("# Goal\n\n{}\n", "word ".repeat(205))),
        "standard",
        "200 words and more"
    );
    assert_eq!(complexity(&world, "# One\n\ntext\n\n## Two\n\ntext\n"), "simple", "under 3 headings");
    assert_eq!(complexity(&world, "# One\n\n## Two\n\n## Three\n"), "standard", "3 headings");
    assert_eq!(complexity(&world, "- a\n- b\n- c\n"), "simple", "under 5 features");
    assert_eq!(complexity(&world, "- a\n- b\n- c\n- d\n- e\n- f\n"), "standard", "5 features and more");
    world.write("src/one_more.rs", "fn x() {}\n");
    assert_eq!(complexity(&world, short), "complex", "more than 50 files");
}

#[test]
fn ec_003_thousands_of_source_files_are_complex() {
    let world = World::new();
    source_files(&world, 5000);
    assert_eq!(complexity(&world, "# Goal\n"), "complex");
}

#[test]
fn ec_004_pictures_fonts_and_films_are_no_source() {
    let world = World::new();
    let noise: Vec<u8> = (0..4096u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for n in 0..30 {
        for kind in ["png", "jpg", "webp", "ico", "woff2", "ttf", "mp4", "webm", "mp3", "svgz"] {
            world.write(&format!("assets/a{n}.{kind}"), &noise);
        }
    }
    assert_eq!(complexity(&world, "# Goal\n"), "simple");
    let prompt = world.prompt(1);
    assert!(
        !prompt.contains('\0') && !prompt.contains('\u{fffd}') && prompt.len() < 20_000,
        "{}",
        prompt.len()
    );
}

#[test]
fn ec_005_links_are_not_followed() {
    let world = World::new();
    let outside = world.outside().join("elsewhere");
    fs::create_dir_all(&outside).unwrap();
    for n in 0..80 {
        fs::write(outside.join(format!("f{n}.rs")), "fn x() {}\n").unwrap();
    }
    symlink(&outside, world.project().join("out")).unwrap();
    fs::create_dir(world.project().join("a")).unwrap();
    symlink("..", world.project().join("a/up")).unwrap();
    symlink("self", world.project().join("self")).unwrap();
    for n in 0..60 {
        symlink(outside.join(format!("f{n}.rs")), world.project().join(format!("link{n}.rs"))).unwrap();
    }
    assert_eq!(complexity(&world, "# Goal\n"), "simple");
}

#[test]
fn ec_006_the_git_folder_is_never_walked() {
    let world = World::with_git();
    for n in 0..200 {
        world.write(&format!(".git/hooks/f{n}.py"), "print(1)\n");
    }
    assert_eq!(complexity(&world, "# Goal\n"), "simple");
}

#[test]
fn ec_007_an_empty_folder_is_enough() {
    let world = World::new();
    world.config("stagnation.warn = 2\nstagnation.pause = 3\n");
    fs::remove_dir_all(world.state()).unwrap();
    let rules = "1-2: change=work.txt say=ok\n*: say=ok";
    let ended = world.run(world.run_script(rules, "--max-iterations 3")).ok();
    assert!(world.state().is_dir());
    let started = ended.event("session_started");
    assert_eq!(started.text("mode"), "analysis");
    let degraded = ended.event("capability_degraded");
    assert_eq!(degraded.text("capability"), "git");
    let changed: Vec<_> =
        ended.events_of("iteration_finished").iter().map(|e| e.data("changed").clone()).collect();
    assert_eq!(changed, [true, true, false], "by a hash of the folder");
    let checkpoints = ended.events_of("checkpoint_created");
    assert!(
        !checkpoints.is_empty() && checkpoints.iter().all(|c| c.data("reference").is_null()),
        "state only"
    );
    let said = format!("{}{}", ended.stdout, ended.stderr).to_lowercase();
    assert!(!said.contains("fatal:") && !said.contains("not a git repository"), "no git error: {said}");
    assert!(!world.has(".git"));
}

#[test]
fn ec_007_init_git_makes_a_repository() {
    let world = World::new();
    let ended = world.run(world.run_agent("change=work.txt say=ok", "--init-git --max-iterations 1")).ok();
    assert!(ended.events_of("capability_degraded").is_empty(), "{}", ended.stdout);
    assert!(world.has(".git/HEAD"));
    assert!(!world.git("for-each-ref refs/longhaul/checkpoints").is_empty());
    assert!(!world.git("status --porcelain").contains(".longhaul"), "our folder is ignored");
}

#[test]
fn ec_011_references_are_listed_not_inlined() {
    let world = World::new();
    world.write("SPEC.md", "# Goal\n\nSee [sub](./sub.md), ./missing.md and ./docs/deep.md.\n");
    world.write("sub.md", "SUB-TEXT-INSIDE and again ./SPEC.md and ./other.md\n");
    world.write("other.md", "OTHER-TEXT-INSIDE and ./sub.md\n");
    world.write("docs/deep.md", "DEEP-TEXT-INSIDE ../SPEC.md\n");
    world.run(world.run_agent("say=ok", "SPEC.md --max-iterations 1")).ok();
    let prompt = world.prompt(1);
    for name in ["sub.md", "docs/deep.md", "other.md", "missing.md"] {
        assert!(prompt.contains(name), "{name} is listed: {prompt}");
    }
    // Those that exist come first, those that are missing under a heading of their own.
    let (there, missing) = prompt.rsplit_once("missing:").unwrap();
    assert!(missing.contains("missing.md") && !missing.contains("sub.md"), "{prompt}");
    assert!(there.contains("- sub.md") || there.contains("sub.md\n"), "{prompt}");
    assert!(!prompt.contains("-TEXT-INSIDE"), "nothing is inlined");
}

#[test]
fn ec_012_a_template_without_its_sections_still_works() {
    let world = World::new();
    world.write("thin.md", "# Thin\n\nJust this.\n");
    world.run(words("init --save thin thin.md")).ok();
    let target = World::new();
    fs::remove_dir_all(target.home()).unwrap();
    symlink(world.home(), target.home()).unwrap();
    let said = target.run(words("init -t thin")).ok().stderr;
    let warnings: Vec<_> = said.lines().filter(|l| l.contains("template_incomplete")).collect();
    assert_eq!(warnings.len(), 3, "one for each section: {said}");
    for (warning, section) in warnings.iter().zip(["Goal", "Requirements", "Done when"]) {
        assert!(warning.contains(section), "{warning}");
    }
    let spec = fs::read_dir(target.project())
        .unwrap()
        .flatten()
        .find(|f| f.path().extension().is_some_and(|e| e == "md"))
        .unwrap();
    let text = fs::read_to_string(spec.path()).unwrap();
    for section in ["## Goal", "## Requirements", "## Done when"] {
        assert!(text.contains(section), "{text}");
    }
}
