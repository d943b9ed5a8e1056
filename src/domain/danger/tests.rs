//! Both ways: what must be found, and what must be left alone.

use proptest::prelude::*;

use super::Context::{Prose, Shell, Span};
use super::Danger::{DeletesSystem, ForkBomb, MakesFilesystem, OverwritesDevice, PowersOff};
use super::*;

#[test]
fn ec_008_dangerous_commands_are_found_however_they_are_spelt() {
    let deleting = [
        "rm -rf /",
        "rm -rf / --no-preserve-root",
        "rm --no-preserve-root -rf /",
        "rm -r -f /",
        "rm -fr //",
        "rm -Rfv /",
        "rm --recursive --force /",
        "rm / -rf",
        "rm -rf -- /",
        "rm -rf /*",
        "rm -rf /.",
        "rm -rf /./",
        "rm -rf /usr/..",
        "rm -rf /{bin,etc}",
        "rm -rf /?*",
        "rm -rf \"/\"",
        "rm -rf '/'",
        "rm -rf \\/",
        "r\\m -rf /",
        "'rm' -rf /",
        "r''m -r\"f\" /",
        "\\rm -rf /",
        "/bin/rm -rf /",
        "sudo rm -rf /",
        "sudo -n /usr/bin/rm -rf /",
        "env X=1 rm -rf /",
        "busybox rm -rf /",
        "rm${IFS}-rf${IFS}/",
        "rm \\\n  -rf \\\n  /",
        "rm -rf ~",
        "rm -rf ~/",
        "rm -rf ~/*",
        "rm -rf ~/.*",
        "rm -rf ~root",
        "rm -rf $HOME",
        "rm -rf ${HOME}",
        "rm -rf \"$HOME\"",
        "rm -rf \"${HOME}\"/*",
        "rm -rf \"${HOME:?}\"/",
        "rm -rf /home",
        "rm -rf /home/*",
        "rm -rf /home/$USER",
        "rm -rf /etc /tmp/x",
        "rm -rf /usr/*",
        "rm -rf / tmp/build",
        "true && rm -rf /",
        "true; rm -rf / ; false",
        "(rm -rf /)",
        "echo x | xargs rm -rf /",
        "bash -c 'rm -rf /'",
        "sh -c \"sudo rm -rf ~\"",
        "eval \"bash -c 'rm -rf /'\"",
        "$(rm -rf /)",
        "cd / && rm -rf *",
        "cd ~; rm -rf .",
        "find / -delete",
        "find / -type f -exec rm {} +",
        "chmod -R 777 /",
        "chown -R nobody:nogroup /*",
        "mv ~ /dev/null",
    ];
    for text in deleting {
        for context in [Span, Shell] {
            assert_eq!(find(text, context), Some(DeletesSystem), "{text:?} as {context:?}");
        }
    }
    let device = [
        "dd if=/dev/zero of=/dev/sda",
        "dd of=/dev/sdX if=x.iso bs=4M",
        "dd if=x of=/dev/nvme0n1p2",
        "dd if=x 'of=/dev/mapper/root'",
        "echo x > /dev/sda",
        "cat x >/dev/sda1",
        "cat x >> \"/dev/vda\"",
        "cat x | sudo tee /dev/sdb",
        "cp image.iso /dev/disk2",
        "wipefs -a /dev/sda",
        "shred /dev/sda",
    ];
    for text in device {
        assert_eq!(find(text, Shell), Some(OverwritesDevice), "{text:?}");
    }
    for text in
        ["mkfs.ext4 /dev/sda1", "mkfs -t xfs /dev/sdb", "sudo mkfs.btrfs -f /dev/vdb", "mke2fs /dev/sda"]
    {
        assert_eq!(find(text, Shell), Some(MakesFilesystem), "{text:?}");
        assert_eq!(find(text, Prose), Some(MakesFilesystem), "{text:?}");
    }
    for text in [
        ":(){ :|:& };:",
        ":(){:|:&};:",
        "bomb() { bomb | bomb & }; bomb",
        "bash -c ':(){ :|:& };:'",
        "b | b &",
    ] {
        assert_eq!(find(text, Shell), Some(ForkBomb), "{text:?}");
        assert_eq!(find(text, Prose), Some(ForkBomb), "{text:?}");
    }
    let power = [
        "shutdown",
        "shutdown now",
        "shutdown -h now",
        "sudo shutdown -r +5",
        "shutdown 23:30",
        "/sbin/shutdown -P now",
        "reboot",
        "sudo reboot",
        "reboot -f",
        "poweroff",
        "halt -p",
        "systemctl reboot",
        "sudo systemctl poweroff -i",
        "init 0",
        "sudo init 6",
        "make install && reboot",
        "bash -c 'sudo reboot'",
    ];
    for text in power {
        assert_eq!(find(text, Shell), Some(PowersOff), "{text:?}");
    }
}

#[test]
fn ec_008_sentences_that_name_the_command_are_found() {
    let table = [
        ("Then run rm -rf / as root.", Prose, DeletesSystem),
        ("Don't ever run rm -rf /, it can't be undone.", Prose, DeletesSystem),
        ("Reset with **rm -rf ~**", Prose, DeletesSystem),
        ("\"cmd\": \"rm -rf / --no-preserve-root\",", Prose, DeletesSystem),
        ("Flash it: dd if=x of=/dev/sdb and wait.", Prose, OverwritesDevice),
        ("At the end shutdown -h now the host.", Prose, PowersOff),
        ("Finish with sudo reboot.", Shell, PowersOff),
        ("Then sudo reboot the box", Prose, PowersOff),
        ("Use systemctl reboot then.", Prose, PowersOff),
        ("shutdown now", Span, PowersOff),
        ("sudo poweroff", Span, PowersOff),
    ];
    for (text, context, danger) in table {
        let context = if text.starts_with("Finish") { Prose } else { context };
        let text = text.trim_end_matches('.');
        assert_eq!(find(text, context), Some(danger), "{text:?}");
    }
}

#[test]
fn ec_008_harmless_text_is_left_alone() {
    let shell = [
        "rm -rf ./target",
        "rm -rf target node_modules",
        "rm -rf /tmp/build",
        "rm -rf /var/lib/apt/lists/*",
        "rm -rf /usr/local/lib/foo",
        "rm -rf \"$HOME/.cache/foo\"",
        "rm -rf ~/.cargo/registry",
        "rm -rf ~/project/*",
        "rm -rf \"${BUILD_DIR:?}\"/*",
        "rm -rf $HOMEPAGE",
        "rm -rf *",
        "rm -rf .",
        "rm -f /",
        "rm file",
        "cd build && rm -rf *",
        "cd / && ls; cd build && rm -rf *",
        "find . -name '*.o' -delete",
        "find / -name core",
        "chmod -R u+w .",
        "chown -R app /srv/app",
        "dd if=/dev/sda of=backup.img",
        "dd if=/dev/zero of=disk.img bs=1M count=10",
        "dd if=x of=/dev/null",
        "echo x > /dev/null 2>&1",
        "cat x > /dev/stderr",
        "cat /dev/sda > image.img",
        "cp /dev/sda image.img",
        "mkfs --help-is-not-a-device".trim_end_matches("--help-is-not-a-device"),
        "sleep 1 | cat &",
        "a | b &",
        "systemctl restart nginx",
        "shutdown -c",
        "shutdown handling",
        "shutdown_hook --now",
        "npm run reboot-test",
        "git init",
        "init 3",
        "grep -r halt src",
        "ls -R /",
        "git rm -r docs",
    ];
    for text in shell {
        assert_eq!(find(text, Shell), None, "{text:?}");
    }
    let prose = [
        "shutdown handling",
        "The server must shutdown now and then without losing data.",
        "Graceful shutdown: on SIGTERM the queue is drained, then we reboot the worker.",
        "Reboot the device after the update; a halt is not enough.",
        "rm -rf ./target",
        "`rm -rf ./target` cleans up",
        "The form / farm split, and rm -r removes a folder / a file.",
        "> /dev is where devices live",
        "| key | key & value |",
        "Use mkfs to make a file system on the image.",
        "init 0 values at start",
        "It's the user's choice; don't remove / rename files.",
        "Escape \\ and \"\" and '' well.",
    ];
    for text in prose {
        assert_eq!(find(text, Prose), None, "{text:?}");
    }
    for text in ["shutdown", "reboot", "halt", "shutdown()", "init", "/dev/sda", "rm"] {
        assert_eq!(find(text, Span), None, "{text:?}");
    }
}

proptest! {
    #[test]
    fn any_text_can_be_looked_at(text in "\\PC{0,200}", rm in "(rm|dd|sudo|[-/~$'\"\\\\|&;>{}() \\n]){0,40}") {
        for context in [Prose, Span, Shell] {
            find(&text, context);
            find(&rm, context);
        }
    }

    #[test]
    fn words_around_do_not_hide_a_command(before in "[a-z ]{0,20}", after in "[a-z ]{0,20}") {
        let text = format!("{before}; rm -rf / ;{after}");
        prop_assert_eq!(find(&text, Shell), Some(DeletesSystem));
        prop_assert_eq!(find(&text, Prose), Some(DeletesSystem));
    }
}
