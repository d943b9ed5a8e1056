use proptest::prelude::*;

use super::*;

fn spec(text: &str) -> Spec {
    Spec::parse(text.into(), Some("SPEC.md"))
}

/// Words, features and headings.
fn counts(text: &str) -> (usize, usize, usize) {
    let spec = spec(text);
    (spec.words, spec.features, spec.headings)
}

fn budget(max_tokens: usize) -> ExcerptBudget<'static> {
    ExcerptBudget { max_tokens, bytes_per_token: 4.0, max_chars: usize::MAX, goal: "", path: "docs/SPEC.md" }
}

fn dangerous(text: &str) -> Vec<usize> {
    let lines = spec(text).warnings.into_iter().filter_map(|w| match w {
        SpecWarning::Dangerous { line_number, .. } => Some(line_number),
        _ => None,
    });
    lines.collect()
}

#[test]
fn headings_and_list_items_count() {
    let table = [
        ("", (0, 0, 0)),
        ("one two\nthree", (3, 0, 0)),
        ("# A\n## B ##\ntext\n- one\n* two\n+ three\n1. four\n2) five\n  - six\n• seven", (20, 9, 2)),
        ("Title\n=====\n\nPart\n---\n", (4, 2, 2)),
        ("#no heading\n####### none\n-none\n1.none\n\n- \n**bold**", (8, 0, 0)),
        ("- - -\n***\n* * *\n", (7, 0, 0)),
        ("```\n# no\n- no\n```\n# yes\n", (8, 1, 1)),
        ("~~~\n```\n# no\n~~~\n# yes", (7, 1, 1)),
        ("```\nnever closed\n# yes\n- yes", (7, 2, 1)),
        ("````\n```\nopen\n# yes", (5, 1, 1)),
        ("<!-- # no\n- no -->\n# yes", (8, 1, 1)),
        ("<!-- never closed\n# yes", (5, 1, 1)),
        ("---\ntitle: x\n- no\n---\n# yes", (8, 1, 1)),
        ("---\n# yes", (3, 1, 1)),
        ("> # quoted\n> - quoted", (6, 0, 0)),
        ("    # code\n", (2, 0, 0)),
        ("- item\n---\n", (3, 1, 0)),
        ("| a |\n|---|\n", (4, 0, 0)),
        ("日本語の仕様 test", (7, 0, 0)),
        ("#\n##\t\n", (2, 2, 2)),
    ];
    for (text, expected) in table {
        assert_eq!(counts(text), expected, "{text:?}");
    }
}

#[test]
fn the_outline_has_titles_and_lines() {
    let spec = spec("---\na: b\n---\n\n#  One  #\ntext\n\n   Two é\n---\n```\n# x\n```\n### Three");
    let seen: Vec<_> = spec.outline.iter().map(|h| (h.level, h.line, spec.title(h))).collect();
    assert_eq!(seen, [(1, 5, "One"), (2, 8, "Two é"), (3, 13, "Three")]);
}

#[test]
fn ep_001_nothing_but_white_space_is_empty() {
    for bytes in
        [&b""[..], b" \n\t\r\n", b"\xEF\xBB\xBF", b"\xEF\xBB\xBF\n", b"\xFF\xFE", b"\xFE\xFF\0 \0\n", b"\0\0"]
    {
        for name in ["SPEC.md", "spec.json", "spec.txt"] {
            let spec = Spec::parse(bytes.to_vec(), Some(name));
            assert_eq!(spec.warnings, [SpecWarning::Empty], "{bytes:?}");
            assert!(spec.is_empty() && spec.size().is_none());
        }
    }
}

#[test]
fn ep_002_broken_json_is_used_as_text() {
    let text = "{\n  \"a\": [1, 2,\n# Goal\n- one\n- two\n";
    let spec = Spec::parse(text.into(), Some("bad.JSON"));
    assert_eq!(spec.format, Format::Text);
    assert_eq!((spec.text.as_str(), spec.headings, spec.features), (text, 1, 3));
    let [SpecWarning::Invalid { line: 3, column: 1, message }] = spec.warnings.as_slice() else {
        panic!("{:?}", spec.warnings)
    };
    assert_eq!(message, "expected value");
}

#[test]
fn json_is_told_by_its_name_or_its_content() {
    let json = r#"{"tasks": ["a", "b"]}"#;
    for name in [Some("a.json"), Some("a.txt"), None] {
        let spec = Spec::parse(json.into(), name);
        assert_eq!((spec.format, spec.features, spec.warnings.len()), (Format::Json, 3, 0));
    }
    let link = Spec::parse("[a](b.md)\n- x".into(), None);
    assert_eq!((link.format, link.features, link.warnings.len()), (Format::Text, 1, 0));
}

#[test]
fn ec_008_dangerous_lines_are_quoted_with_their_number() {
    let text =
        "# Clean up\n\n```sh\ncargo clean\nrm -rf / --no-preserve-root\n```\nThen shutdown handling.\n";
    let found = spec(text).warnings;
    let line = "rm -rf / --no-preserve-root".to_owned();
    assert_eq!(found, [SpecWarning::Dangerous { line_number: 5, line }]);
}

#[test]
fn ec_008_where_a_line_stands_decides_how_it_is_read() {
    let table: [(&str, &[usize]); 15] = [
        ("```\nreboot\n```", &[2]),
        ("```rust\nreboot\n```", &[]),
        ("reboot", &[]),
        ("$ reboot", &[1]),
        ("Call `reboot` then.", &[]),
        ("Call `shutdown -h now` then.", &[1]),
        ("Never run `rm -rf /`, please", &[1]),
        ("> rm -rf ~", &[1]),
        ("> /dev/sda is the disk", &[]),
        ("```\necho > /dev/sda\n```", &[2]),
        ("```sh\nrm \\\n  -rf \\\n  /\nls\n```", &[2]),
        ("```sh\nls \\\n  -l\n```\nrm -rf ./x", &[]),
        ("a\n\n```sh\nrm -rf /\n", &[4]),
        ("{\"cmd\": \"rm -rf ~/\"}", &[1]),
        ("{\"run\": \"make\\nrm -rf \\\"/\\\"\\nls\"}", &[1]),
    ];
    for (text, lines) in table {
        assert_eq!(dangerous(text), lines, "{text:?}");
    }
}

#[test]
fn ec_008_a_spec_full_of_danger_gives_a_bounded_list() {
    assert_eq!(dangerous(&"rm -rf /\n".repeat(1000)).len(), MAX_DANGEROUS);
    let long = format!("{} rm -rf / {}", "word ".repeat(2000), "word ".repeat(2000));
    let found = spec(&long).warnings;
    let [SpecWarning::Dangerous { line_number: 1, line }] = found.as_slice() else { panic!("{found:?}") };
    assert!(line.chars().count() <= MAX_QUOTE + 1);
}

#[test]
fn warnings_are_one_to_one_with_events() {
    let all = [
        SpecWarning::Empty,
        SpecWarning::Invalid { line: 1, column: 2, message: "x".into() },
        SpecWarning::Truncated { from_chars: 2, to_chars: 1 },
        SpecWarning::Dangerous { line_number: 1, line: "x".into() },
    ];
    for warning in all {
        let json = serde_json::to_value(&warning).unwrap();
        assert_eq!(json["type"], warning.event_type());
    }
}

#[test]
fn a_short_spec_is_shown_whole() {
    let spec = spec("# Goal\ntext\n");
    let excerpt = spec.excerpt(&budget(100));
    assert_eq!((excerpt.text.as_ref(), excerpt.truncated), ("# Goal\ntext\n", None));
}

/// A spec with many sections of prose, each with a code block and a task.
fn long_spec(sections: usize) -> String {
    let mut text = String::from("# Product\n\nWhat it is for.\n\n");
    for n in 0..sections {
        text += &format!("## Part {n} about topic{n}\n\n{}\n\n", "Ünïcode words of prose. ".repeat(20));
        text += &format!(
            "```sh\ncargo run --part {n}\n# not a heading\n```\n\n- [{}] task {n}\n\n",
            if n % 50 == 7 { " " } else { "x" }
        );
    }
    text
}

#[test]
fn ec_002_a_long_spec_is_shown_by_outline_head_tasks_and_relevant_sections() {
    let spec = spec(&long_spec(300));
    let budget = ExcerptBudget { goal: "finish topic250 now", ..budget(10_000) };
    let excerpt = spec.excerpt(&budget);
    let text = excerpt.text.as_ref();
    assert!(text.len() <= 40_000, "{}", text.len());
    let to_chars = text.chars().count();
    assert_eq!(excerpt.truncated, Some(SpecWarning::Truncated { from_chars: spec.chars, to_chars }));
    assert!(text.contains("docs/SPEC.md"));
    assert!(text.contains("# Product\n\nWhat it is for."), "the head");
    assert!(text.contains("## Part 299 about topic299"), "the outline");
    assert!(text.contains("- [ ] task 257"), "an open task far down");
    assert!(!text.contains("- [x] task 256"), "a closed one");
    assert!(text.contains("cargo run --part 250\n# not a heading\n```"), "the section of the goal");
    assert!(text.len() > 36_000, "the room is used: {}", text.len());
    assert!(text.contains(" left out ...]"));
}

#[test]
fn ec_002_a_fence_that_does_not_fit_is_left_out_whole() {
    let text = format!("Start.\n\n```\n{}```\n\nEnd.\n", "code line\n".repeat(5000));
    let spec = spec(&text);
    let excerpt = spec.excerpt(&budget(1000));
    assert!(excerpt.text.contains("Start.") && !excerpt.text.contains("code line"), "{}", excerpt.text);
    assert!(excerpt.text.contains("[... lines 3 to 5006 left out ...]"), "{}", excerpt.text);
}

#[test]
fn ec_002_one_endless_line_is_cut_behind_a_word_or_a_character() {
    let words = spec(&"wörter ".repeat(20_000));
    let text = words.excerpt(&budget(1000)).text.into_owned();
    assert!(text.contains("wörter\n[... 1"), "{}", &text[text.len() - 100..]);
    let solid = spec(&"ü".repeat(100_000));
    assert!(solid.excerpt(&budget(1000)).text.contains("characters left out ...]"));
}

#[test]
fn ec_002_more_headings_than_fit_are_told() {
    let mut text = String::from("# Top\n");
    for n in 0..2000 {
        text += &format!("## Area {n}\n### Detail {n}\n\nWords.\n\n");
    }
    let spec = spec(&text);
    let excerpt = spec.excerpt(&budget(40_000 / 4)).text.into_owned();
    assert!(excerpt.contains("# Top") && excerpt.contains("more headings"), "{}", &excerpt[..600]);
    let wide = spec.excerpt(&budget(110_000 / 4)).text.into_owned();
    assert!(wide.len() <= 110_000);
}

#[test]
fn ec_002_json_is_excerpted_by_its_fields() {
    let items: Vec<String> = (0..5000).map(|n| format!("task number {n}")).collect();
    let json = serde_json::json!({"goal": "x", "tasks": items, "zone": "last"});
    let spec = Spec::parse(serde_json::to_vec_pretty(&json).unwrap(), Some("prd.json"));
    let text = spec.excerpt(&ExcerptBudget { goal: "the zone", ..budget(2000) }).text.into_owned();
    assert!(text.contains("5005  # zone") && text.contains("\"zone\": \"last\""), "{text}");
}

#[test]
fn a_tiny_budget_leaves_the_note_with_the_path() {
    let spec = spec(&long_spec(50));
    for tokens in [0, 1, 50, 100] {
        let text = spec.excerpt(&budget(tokens)).text.into_owned();
        assert!(text.contains("docs/SPEC.md") && text.len() < 600, "{text}");
    }
}

#[test]
fn a_limit_in_characters_is_kept_where_bytes_and_characters_differ() {
    let text = format!("{}\n{}", "日本 語\n".repeat(3000), "ascii words\n".repeat(3000));
    let spec = spec(&text);
    for max_chars in [1000, 5000, 20_000] {
        let excerpt = spec.excerpt(&ExcerptBudget { max_chars, ..budget(1_000_000) });
        assert!(excerpt.text.chars().count() <= max_chars, "{max_chars}");
    }
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        "#{1,6} [a-zé ]{1,12}\n",
        "[a-zé日 ]{0,60}\n",
        "- \\[[ x]\\] [a-z]{1,8}\n",
        Just("```sh\n".to_owned()),
        Just("```\n".to_owned()),
        Just("~~~~\n".to_owned()),
        Just("===\n".to_owned()),
        Just("---\n".to_owned()),
        "[a-z日 ]{0,300}",
    ]
}

proptest! {
    #[test]
    fn an_excerpt_fits_and_is_never_cut_in_a_fence(
        pieces in prop::collection::vec(piece(), 0..120), tokens in 200_usize..900, goal in "[a-z]{0,6}",
    ) {
        let spec = spec(&pieces.concat());
        let excerpt = spec.excerpt(&ExcerptBudget { goal: &goal, ..budget(tokens) });
        prop_assert!(excerpt.text.len() <= tokens * 4, "{} of {}", excerpt.text.len(), tokens * 4);
        prop_assert_eq!(excerpt.truncated.is_none(), excerpt.text.as_ref() == spec.text.as_str());
        for piece in excerpt::choose(&spec, &goal, tokens * 4) {
            prop_assert!(spec.text.get(piece.clone()).is_some_and(|text| !text.is_empty()));
            for edge in [piece.start, piece.end] {
                let cut = spec.fences.iter().find(|fence| fence.start < edge && edge < fence.end);
                prop_assert_eq!(cut, None, "cut at {}", edge);
            }
        }
    }

    #[test]
    fn pieces_fit_their_room_in_order(
        pieces in prop::collection::vec(piece(), 0..120), room in 0_usize..3000, goal in "[a-z]{0,6}",
    ) {
        let spec = spec(&pieces.concat());
        let chosen = excerpt::choose(&spec, &goal, room);
        prop_assert!(chosen.is_sorted_by(|a, b| a.end < b.start));
        prop_assert!(chosen.iter().map(|piece| piece.len()).sum::<usize>() <= room);
    }

    #[test]
    fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..300), json: bool) {
        let spec = Spec::parse(bytes, Some(if json { "a.json" } else { "a.md" }));
        for heading in &spec.outline {
            prop_assert!(spec.text.get(heading.title.clone()).is_some());
            prop_assert!(heading.start <= heading.title.start);
        }
        spec.excerpt(&budget(20));
    }

    #[test]
    fn sections_are_in_order_and_start_at_lines(pieces in prop::collection::vec(piece(), 0..60)) {
        let spec = spec(&pieces.concat());
        prop_assert!(spec.outline.is_sorted_by(|a, b| a.start < b.start && a.line < b.line));
        prop_assert!(spec.fences.is_sorted_by(|a, b| a.end <= b.start));
        for start in spec.outline.iter().map(|h| h.start).chain(spec.fences.iter().map(|f| f.start)) {
            prop_assert!(start == 0 || spec.text.as_bytes()[start - 1] == b'\n');
        }
        prop_assert_eq!(spec.headings, spec.outline.len());
    }
}
