//! The words of a prompt, section by section.

use std::fmt::Write as _;

use super::build::{failing, shown_spec};
use super::text::{fence_for, head, one_line, output, tail, verbatim};
use super::{Conversation, GateResult, GateVerdict, Message, Mode, Note, PromptInput, ReferenceList};
use crate::domain::claim::{BLOCKED, DONE, DONE_FILE};
use crate::domain::spec::{ExcerptBudget, SpecWarning};

/// Writing to a string cannot fail, so its results are dropped.
#[derive(Default)]
pub(super) struct Writer(String);

// === impl Writer ===

impl Writer {
    /// What was written.
    pub(super) fn into_text(self) -> String {
        self.0
    }

    pub(super) fn section(&mut self, title: &str) {
        let _ = write!(self.0, "\n## {title}\n\n");
    }

    fn line(&mut self, text: &str) {
        self.0.push_str(text);
        self.0.push('\n');
    }

    pub(super) fn block(&mut self, text: &str) {
        self.0.push_str(text);
        if !text.ends_with('\n') {
            self.0.push('\n');
        }
    }

    pub(super) fn role(&mut self, input: &PromptInput<'_>) {
        self.line(
            "You are an autonomous coding agent in a session that runs unattended under Longhaul. Nobody can answer \
             questions during this turn: decide yourself, write decisions down where the next turn finds them \
             (code, docs, commit messages), and go on.",
        );
        let _ = match input.max_iterations {
            Some(max) => writeln!(self.0, "This is iteration {} of at most {max}.", input.iteration),
            None => writeln!(self.0, "This is iteration {}.", input.iteration),
        };
        self.line(match input.conversation {
            Conversation::Fresh => {
                "You start without memory of earlier turns: the files, the git history and this prompt are all there \
                 is. Look before you act."
            }
            Conversation::Resumed => "It goes on with the conversation that you have; the files may have changed.",
        });
        if let Some(task) = &input.lane_task {
            let _ = writeln!(
                self.0,
                "Several agents work at once, each in a worktree of its own. You are lane {}: work only in the \
                 current folder and only on your task.",
                task.lane
            );
        }
    }

    pub(super) fn messages(&mut self, input: &PromptInput<'_>) {
        if input.messages.is_empty() {
            return;
        }
        self.section("Messages from a person");
        self.line(
            "A person sent the following to you. These words outrank the spec, the plan and everything below: do what \
             they ask first. Where two of them differ, the later one holds.",
        );
        for message in &input.messages {
            self.message(message, input.limits.message_max_chars);
        }
    }

    fn message(&mut self, message: &Message, max_chars: usize) {
        let _ = writeln!(self.0, "\n<message id=\"{}\" time=\"{}\">", message.id, message.time);
        let start = head(&message.text, max_chars);
        match &message.file {
            Some(file) if start.len() < message.text.len() => {
                self.block(&verbatim(start));
                let _ = writeln!(
                    self.0,
                    "[The message goes on: {} characters in all. Read the whole of it in {} before you act.]",
                    message.text.chars().count(),
                    one_line(file)
                );
            }
            _ => self.block(&verbatim(&message.text)),
        }
        self.line("</message>");
    }

    /// What the work is measured by. The warning if the spec had to be shortened.
    pub(super) fn goal(&mut self, input: &PromptInput<'_>, max_chars: usize) -> Option<SpecWarning> {
        match input.mode {
            Mode::Spec => {}
            Mode::Analysis => self.analysis(&input.facts),
            Mode::NextGoal => {
                self.section("Goal");
                self.line(
                    "All goals so far are met. Find the next one: the change that would be worth most to the users of \
                     this project (a missing feature, a fault, a weak spot in tests, speed, docs). Write it down with \
                     how one can see that it is done, then work on it.",
                );
            }
        }
        let spec = input.spec?;
        self.section("Spec");
        let path = one_line(spec.path);
        let Some(shown) = shown_spec(input) else {
            let _ = writeln!(self.0, "The spec has not changed since you were given it; it is in {path}.");
            self.references(&input.references);
            return None;
        };
        let excerpt = shown.spec.excerpt(&ExcerptBudget {
            max_tokens: input.limits.spec_max_tokens,
            bytes_per_token: input.limits.bytes_per_token,
            max_chars,
            goal: input.lane_task.as_ref().map_or(shown.goal, |task| task.text.as_str()),
            path: &path,
        });
        let what = match input.mode {
            Mode::NextGoal => "This is what was asked for so far: it still holds.",
            Mode::Spec | Mode::Analysis => "This is what must be built.",
        };
        let _ = writeln!(self.0, "{what} Its file is {path}.\n\n<spec>");
        self.block(&verbatim(&excerpt.text));
        self.line("</spec>");
        self.references(&input.references);
        excerpt.truncated
    }

    fn analysis(&mut self, facts: &[String]) {
        self.section("Goal");
        self.line(
            "There is no spec. Derive the work from the code base: find out what this project is for and who uses it, \
             what is broken, unfinished, untested or undocumented, and what its own notes (README, TODO, open tasks) \
             ask for. Do what is worth most first. In an empty folder look for any hint of what is wanted; if there is \
             none, ask for a person.",
        );
        if !facts.is_empty() {
            self.line("\nWhat a first look shows:");
            for fact in facts {
                let _ = writeln!(self.0, "- {}", one_line(fact));
            }
        }
    }

    fn references(&mut self, references: &ReferenceList) {
        self.paths("Files that the spec refers to; read them when you need them:", &references.existing);
        self.paths("Files that the spec refers to and that are missing:", &references.missing);
        self.paths("Files that the spec refers to outside the project (not looked at):", &references.outside);
        if references.more {
            self.line("There are more references than are listed here.");
        }
    }

    fn paths(&mut self, title: &str, paths: &[String]) {
        if paths.is_empty() {
            return;
        }
        let _ = writeln!(self.0, "\n{title}");
        for path in paths {
            let _ = writeln!(self.0, "- {}", one_line(path));
        }
    }

    pub(super) fn gates(&mut self, gates: &[GateResult], tail_chars: usize) {
        if gates.is_empty() {
            return;
        }
        self.section("Checks after the last turn");
        for gate in gates {
            let verdict = match gate.verdict {
                GateVerdict::Passed => "passed",
                GateVerdict::Failed => "FAILED",
                GateVerdict::TimedOut => "TIMED OUT (counts as failed)",
                GateVerdict::NotRun => "COULD NOT RUN (counts as failed)",
            };
            let _ = writeln!(self.0, "- {}: {verdict}", one_line(&gate.name));
            if gate.verdict == GateVerdict::Passed {
                continue;
            }
            let whole = output(&gate.tail);
            let shown = tail(&whole, tail_chars);
            if shown.trim().is_empty() {
                continue;
            }
            let fence = fence_for(shown);
            let cut = if shown.len() < whole.len() { "[... the beginning is left out ...]\n" } else { "" };
            let _ = writeln!(self.0, "\n{fence}\n{cut}{shown}\n{fence}\n");
        }
        if failing(gates).next().is_some() {
            self.line("Repair what failed before you begin anything new.");
        }
    }

    pub(super) fn notes(&mut self, input: &PromptInput<'_>) {
        if input.notes.is_empty() && input.stagnant == 0 {
            return;
        }
        self.section("About the last turn");
        for note in &input.notes {
            self.0.push_str("- ");
            self.note(note);
        }
        if input.stagnant > 0 {
            let _ = writeln!(
                self.0,
                "- STAGNATION: the last {} turns changed no file. Do not repeat what did not work. Find out why \
                 nothing moves, try another way or another part of the work, and leave a visible result; if \
                 everything is done, claim it; if you cannot go on, ask for a person.",
                input.stagnant
            );
        }
    }

    fn note(&mut self, note: &Note) {
        let _ = match note {
            Note::ClaimRejected { by } => writeln!(
                self.0,
                "You claimed that everything is done. That was checked and rejected by: {}. Repair the cause, then \
                 claim again.",
                one_line(&by.join(", "))
            ),
            Note::ClaimQuoted => writeln!(
                self.0,
                "Your answer had a completion marker within a quote, list or code block, where it does not count. If \
                 you meant it, write it as plain text on a line of its own."
            ),
            Note::Cut => writeln!(
                self.0,
                "The last attempt was cut in the middle of its work. Look at what it left (uncommitted changes, half \
                 done edits) and go on from there."
            ),
            Note::ContextOverflow => writeln!(
                self.0,
                "The conversation had become too long for the model, so this is a new one with a shorter prompt. Read \
                 only the files that you need, and only the parts that you need."
            ),
            Note::Denied { tools } => writeln!(
                self.0,
                "These tools were refused to you: {}. Find a way without them.",
                one_line(&tools.join(", "))
            ),
            Note::SpecChanged => {
                writeln!(self.0, "The spec was changed since the last turn: look at what is new.")
            }
            Note::Other { text } => writeln!(self.0, "{}", one_line(text)),
        };
    }

    pub(super) fn turn(&mut self, input: &PromptInput<'_>) {
        self.section("This turn");
        if let Some(task) = &input.lane_task {
            self.line("Your task:\n\n<task>");
            self.block(&verbatim(&task.text));
            self.line("</task>\n");
        }
        let first = match (input.messages.is_empty(), failing(&input.gates).next()) {
            (false, _) => "Do what the person asks above.",
            (true, Some(_)) => "Repair the failed checks.",
            (true, None) => "Find the unfinished work that is worth most.",
        };
        let _ = writeln!(self.0, "1. Look at the present state: files, git log, git status. {first}");
        self.line(
            "2. Choose one piece of work that you can finish in this turn, and finish it: no stubs, no placeholders, no \
             TODO in its place.\n\
             3. Prove that it works: build, run the tests, add tests for what is new. Never weaken, skip or delete a \
             test or check to make it pass.\n\
             4. If the folder is a git repository, commit each finished piece with a message that says why. Keep what \
             others changed.\n\
             5. Leave nothing running when you end, and leave .longhaul/ alone but for the claim described below.\n\
             6. End with a short summary: what you did, what you verified, what is left. Another turn follows by itself.",
        );
    }

    pub(super) fn claiming(&mut self, input: &PromptInput<'_>) {
        self.section("When everything is done");
        let all = match (&input.lane_task, input.mode) {
            (Some(_), _) => "your task is done",
            (None, Mode::Spec) => "everything in the spec is done",
            (None, Mode::Analysis) => "you find nothing more that is worth doing",
            (None, Mode::NextGoal) => "the goal that you chose is met",
        };
        let _ = writeln!(
            self.0,
            "Only when {all} and you have verified it, claim it: let the last line of your final answer be the one \
             word {DONE} as plain text, with nothing else on that line (or write a short summary into the file \
             {DONE_FILE} in the current folder). The claim is checked before it counts; a false one costs a turn. If \
             anything is left, do not claim."
        );
        let _ = writeln!(
            self.0,
            "If you cannot go on at all without a person (a missing credential, a decision that only they can take), \
             let the last line be {BLOCKED}: followed by what you need. Not for things that you can decide or find \
             out yourself."
        );
    }
}
