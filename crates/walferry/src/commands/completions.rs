//! Completion scripts: those of clap, and the names of connectors, for which they ask the process that the line names, and of contexts.
//!
//! The names are what a server has answered. No script lets a shell evaluate them.

use std::collections::BTreeSet;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;

/// Commands whose arguments are names of connectors.
const COMMANDS: [&str; 9] = [
    "describe", "pause", "resume", "stop", "restart", "delete", "logs", "snapshot", "signal",
];

/// Options that say which process is asked, and how. All of them have a value.
const TARGET: [&str; 8] = [
    "--admin",
    "--url",
    "--context",
    "--ca",
    "--cert",
    "--key",
    "--user",
    "--password-file",
];

/// The script for a shell.
pub(crate) fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "walferry", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let target = TARGET.join("|");
    let script = match shell {
        Shell::Bash => {
            let names = BASH.replace("COMMANDS", &COMMANDS.join("|"));
            script + &names.replace("TARGET", &target).replace("VALUED", &valued().join("|"))
        }
        Shell::Zsh => {
            let named = ["Name of the connector", "Names of the connectors"];
            let named = named.iter().fold(script, |script, help| {
                script.replace(&format!("{help}:_default"), &format!("{help}:_walferry_names"))
            });
            let line = |line: &str| match line.contains("--context=[") {
                true => line.replace(":NAME:_default", ":NAME:_walferry_contexts") + "\n",
                false => format!("{line}\n"),
            };
            let named: String = named.lines().map(line).collect();
            let names = ZSH.replace("TARGET", &target);
            // The last lines call the function of the whole script.
            match named.rfind("if [ \"$funcstack[1]\"") {
                Some(at) => format!("{}{names}\n{}", &named[..at], &named[at..]),
                None => named + &names,
            }
        }
        Shell::Fish => {
            let names = FISH.replace("COMMANDS", &COMMANDS.join(" "));
            script + &names.replace("TARGET", &TARGET.join(" "))
        }
        _ => script,
    };
    script.into_bytes()
}

/// The options of these commands that have a value: what follows one of them is no name of a connector.
fn valued() -> Vec<String> {
    let mut valued = BTreeSet::new();
    let cli = Cli::command();
    let commands = cli
        .get_subcommands()
        .filter(|command| COMMANDS.contains(&command.get_name()));
    let options = commands.flat_map(|command| command.get_opts());
    for option in options.filter(|option| option.get_action().takes_values()) {
        valued.extend(option.get_long().map(|name| format!("--{name}")));
        valued.extend(option.get_short().map(|name| format!("-{name}")));
    }
    valued.into_iter().collect()
}

/// `compgen -W` would evaluate the names. Bash splits the words of the line at colons, too, so addresses are taken from the line.
const BASH: &str = r#"
_walferry_add() {
    local name
    COMPREPLY=()
    while IFS= read -r name; do
        if [[ "$name" == "$1"* ]]; then
            COMPREPLY+=("$(printf '%q' "$name")")
        fi
    done
}
_walferry_with_names() {
    _walferry "$@"
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" word option=
    local -a words=() target=()
    if [[ "$cur" == "=" ]]; then
        cur=
    elif [[ "$prev" == "=" ]]; then
        prev="${COMP_WORDS[COMP_CWORD-2]}"
    fi
    if [[ "$prev" == --context ]]; then
        _walferry_add "$cur" < <("${COMP_WORDS[0]}" contexts --output name 2>/dev/null </dev/null)
        return 0
    fi
    case "$prev" in
        VALUED) return 0 ;;
    esac
    if [[ "$cur" == -* ]]; then
        return 0
    fi
    read -ra words <<< "${COMP_LINE:0:COMP_POINT}"
    for word in "${words[@]}"; do
        if [[ -n "$option" ]]; then
            target+=("$option=$word")
            option=
            continue
        fi
        case "${word%%=*}" in
            TARGET)
                if [[ "$word" == *=* ]]; then target+=("$word"); else option="$word"; fi
                ;;
        esac
    done
    case "${COMP_WORDS[1]}" in
        COMMANDS)
            _walferry_add "$cur" < <("${COMP_WORDS[0]}" list --output name "${target[@]}" 2>/dev/null </dev/null)
            ;;
    esac
    return 0
}
complete -F _walferry_with_names -o nosort -o bashdefault -o default walferry
"#;

const ZSH: &str = r#"
_walferry_names() {
    local -a names target
    local word option
    for word in "${words[@]}"; do
        if [[ -n "$option" ]]; then
            target+=("$option=${(Q)word}")
            option=
            continue
        fi
        case "${word%%=*}" in
            (TARGET)
                if [[ "$word" == *=* ]]; then target+=("${(Q)word}"); else option="$word"; fi
                ;;
        esac
    done
    names=("${(@f)$("${_comp_command1:-walferry}" list --output name "${target[@]}" 2>/dev/null </dev/null)}")
    names=("${(@)names:#}")
    compadd -a names
}
_walferry_contexts() {
    local -a names
    names=("${(@f)$("${_comp_command1:-walferry}" contexts --output name 2>/dev/null </dev/null)}")
    names=("${(@)names:#}")
    compadd -a names
}
"#;

const FISH: &str = r#"
function __walferry_names
    set -l target
    set -l option
    set -l words (commandline -opc)
    for word in $words
        if test -n "$option"
            set -a target "$option=$word"
            set option
        else if contains -- (string replace -r '=.*' '' -- $word) TARGET
            if string match -q -- '*=*' $word
                set -a target $word
            else
                set option $word
            end
        end
    end
    command $words[1] list --output name $target 2>/dev/null </dev/null
end
complete -c walferry -n "__fish_seen_subcommand_from COMMANDS" -f -a "(__walferry_names)"
complete -c walferry -l context -x -a "(walferry contexts --output name 2>/dev/null </dev/null)"
"#;

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::PermissionsExt as _,
        path::Path,
        process::{Command, Stdio},
    };

    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_shell_has_a_script_and_three_complete_names() {
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(*shell)).unwrap();
            assert!(script.contains("walferry"), "{shell}");
            for asks in ["list --output name", "contexts --output name"] {
                let is_asked = script.contains(asks);
                assert_eq!(
                    is_asked,
                    matches!(shell, Shell::Bash | Shell::Zsh | Shell::Fish),
                    "{shell}"
                );
            }
        }
        let zsh = String::from_utf8(script(Shell::Zsh)).unwrap();
        for place in ["Names of the connectors:_walferry_names", ":NAME:_walferry_contexts"] {
            assert!(zsh.contains(place), "{place}");
        }
        // Each of them has its value in every command.
        let valued = valued();
        assert!(
            TARGET.iter().all(|option| valued.iter().any(|valued| valued == option)),
            "{valued:?}"
        );
        assert!(!valued.contains(&"--wait".to_owned()), "{valued:?}");
    }

    /// What an interactive bash offers for a line that ends at the cursor.
    fn offered(file: &Path, line: &str) -> Vec<String> {
        // Readline splits at `COMP_WORDBREAKS`, which has the colon and the equals sign.
        let ask = r#"
            . "$1"; line=$2; COMP_LINE=$line COMP_POINT=${#line} COMP_WORDS=()
            spaced=${line//=/ = }; spaced=${spaced//:/ : }
            read -ra COMP_WORDS <<< "$spaced"
            [[ "$line" == *' ' ]] && COMP_WORDS+=('')
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
            _walferry_with_names "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
            for reply in "${COMPREPLY[@]}"; do printf '%s\n' "$reply"; done"#;
        let output = Command::new("bash")
            .args(["-c", ask, "bash"])
            .arg(file)
            .arg(line)
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn bash_asks_the_process_that_the_line_names_and_completes_contexts() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("walferry");
        let asked = folder.path().join("asked");
        let script_of_program = format!(
            "#!/bin/sh\necho \"$*\" >> {}\ncase $1 in list) printf 'orders\\norders-2\\nusers\\n';; contexts) printf 'prod\\nstage\\n';; esac\n",
            asked.display()
        );
        fs::write(&program, script_of_program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let file = folder.path().join("completions");
        fs::write(&file, script(Shell::Bash)).unwrap();
        let of = |words: &str| offered(&file, &format!("{} {words}", program.display()));
        for (line, expected) in [
            ("pause or", &["orders", "orders-2"][..]),
            ("pause --wait orders us", &["users"]),
            ("pause --wait us", &["users"]),
            ("describe --context prod u", &["users"]),
            ("describe --url http://localhost:8083 u", &["users"]),
            ("logs --admin=localhost:8083 users", &["users"]),
            ("status --context ", &["prod", "stage"]),
            ("restart orders --context=s", &["stage"]),
            ("snapshot orders --context ", &["prod", "stage"]),
            ("status ", &[]),
        ] {
            let offered: Vec<String> = of(line).into_iter().filter(|word| !word.starts_with('-')).collect();
            assert_eq!(offered, expected, "{line}");
        }
        assert_eq!(of("describe orders --out"), ["--output"]);
        // What follows is no name of a connector.
        assert!(!of("snapshot orders --table ").contains(&"orders".to_owned()));
        let asked = fs::read_to_string(&asked).unwrap();
        for line in [
            "list --output name\n",
            "list --output name --context=prod\n",
            "list --output name --url=http://localhost:8083\n",
            "list --output name --admin=localhost:8083\n",
            "contexts --output name\n",
        ] {
            assert!(asked.contains(line), "{line}{asked}");
        }
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
        let lines = offered(&file, &format!("{} pause or", program.display()));
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!(lines[0], "orders");
        assert!(!folder.path().join("evil").exists(), "{lines:?}");
    }
}
