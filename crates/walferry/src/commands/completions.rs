//! Completion scripts: those of clap, and the names of connectors, for which they ask the running process.
//!
//! The names are what a server has answered. No script lets a shell evaluate them.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;

/// Commands whose arguments are names of connectors.
const COMMANDS: [&str; 9] = [
    "describe", "pause", "resume", "stop", "restart", "delete", "logs", "snapshot", "signal",
];

/// The script for a shell.
pub(crate) fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "walferry", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let script = match shell {
        Shell::Bash => script + &BASH.replace("COMMANDS", &COMMANDS.join("|")),
        Shell::Zsh => {
            let named = ["Name of the connector", "Names of the connectors"];
            let named = named.iter().fold(script, |script, help| {
                script.replace(&format!("{help}:_default"), &format!("{help}:_walferry_names"))
            });
            // The last lines call the function of the whole script.
            match named.rfind("if [ \"$funcstack[1]\"") {
                Some(at) => format!("{}{ZSH}\n{}", &named[..at], &named[at..]),
                None => named + ZSH,
            }
        }
        Shell::Fish => script + &FISH.replace("COMMANDS", &COMMANDS.join(" ")),
        _ => script,
    };
    script.into_bytes()
}

/// `compgen -W` would evaluate the names.
const BASH: &str = r#"
_walferry_with_names() {
    _walferry "$@"
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" name
    if [[ "$cur" == -* || "$prev" == -* ]]; then
        return 0
    fi
    case "${COMP_WORDS[1]}" in
        COMMANDS)
            COMPREPLY=()
            while IFS= read -r name; do
                if [[ "$name" == "$cur"* ]]; then
                    COMPREPLY+=("$(printf '%q' "$name")")
                fi
            done < <("${COMP_WORDS[0]}" list --output name 2>/dev/null </dev/null)
            ;;
    esac
    return 0
}
complete -F _walferry_with_names -o nosort -o bashdefault -o default walferry
"#;

const ZSH: &str = r#"
_walferry_names() {
    local -a names
    names=("${(@f)$("${words[1]}" list --output name 2>/dev/null </dev/null)}")
    compadd -a names
}
"#;

const FISH: &str = r#"
complete -c walferry -n "__fish_seen_subcommand_from COMMANDS" -f -a "(walferry list --output name 2>/dev/null </dev/null)"
"#;

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::PermissionsExt as _,
        process::{Command, Stdio},
    };

    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_shell_has_a_script_and_three_complete_names() {
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(*shell)).unwrap();
            assert!(script.contains("walferry"), "{shell}");
            let asks = script.contains("list --output name");
            assert_eq!(asks, matches!(shell, Shell::Bash | Shell::Zsh | Shell::Fish), "{shell}");
        }
        let zsh = String::from_utf8(script(Shell::Zsh)).unwrap();
        assert!(zsh.contains("Names of the connectors:_walferry_names"), "{zsh}");
    }

    #[test]
    fn bash_completes_names_and_evaluates_none_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("walferry");
        let hostile = format!(
            "orders\nor$(touch {0}/evil)\nor`touch {0}/evil`\nother\n",
            folder.path().display()
        );
        fs::write(folder.path().join("names"), hostile).unwrap();
        fs::write(&program, format!("#!/bin/sh\ncat {}/names\n", folder.path().display())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let file = folder.path().join("completions");
        fs::write(&file, script(Shell::Bash)).unwrap();
        let ask = format!(
            ". {}; COMP_WORDS=({} pause or); COMP_CWORD=2; _walferry_with_names walferry or pause; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            file.display(),
            program.display()
        );
        let output = Command::new("bash")
            .args(["-c", &ask])
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 3, "{said}");
        assert_eq!(lines[0], "orders");
        assert!(!folder.path().join("evil").exists(), "{said}");
    }
}
