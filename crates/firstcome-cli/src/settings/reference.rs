//! Renders the page of all settings from the arguments of the commands and the keys of the file.

use super::file::key_of;
use crate::keys::SECRETS;
use clap::{Arg, CommandFactory};
use std::fmt::Write;

/// The text above the tables. The keys of callers and the secret have no flag, so no argument describes them.
const HEAD: &str = "\
# Configuration

`cargo xtask docs` writes this page from the code.

A setting comes from its flag, then from its environment variable, then from the settings file, then from its default. Durations are written as `250ms`,
`9s`, `5m`, `1h`.

The settings file is the one that `--config` or `FIRSTCOME_CONFIG` names. If none is named, `serve`, `gate`, `doctor` and `config` read
`/etc/firstcome/firstcome.toml` if it is there, except with `--dev`. No command reads settings from its working directory. The file is TOML: texts in quotes, numbers without, a
list as an array of texts. A key that is unknown or has a wrong value is refused, and so is a start.

`serve`, `gate` and `config` refuse a variable `FIRSTCOME_…` that no command knows, with exit code 2 and the name that was probably meant. Variables that
Kubernetes sets for a Service are accepted, such as `FIRSTCOME_SERVICE_HOST` and `FIRSTCOME_PORT_8080_TCP`.

```toml
listen = \"0.0.0.0:8080\"
data = \"/var/lib/firstcome\"
trusted-proxy = [\"10.0.0.0/8\"]
stop-grace = \"10s\"
```

`firstcome config check` reads all settings as `serve` does, and starts nothing: exit code 0, or 2 with a line for each problem. The first wrong value of a flag or a
variable is told alone, and so is the first problem of a gate's own flags. `firstcome config print` shows the settings in force, each with its source, and no secret;
`--json` adds default, variable and help. `--for gate` means those of a gate, and flags follow after `--`:

```sh
firstcome config check --config /etc/firstcome/firstcome.toml
firstcome config print --for gate -- --drain 20s
```

## Secrets

Arguments are in the list of processes, which all users of a machine can read. These secrets have no flag. An address with a password belongs into a file of its
own, named by `--redis-file` and `--sql-file`; a password in `--redis` or `--sql` works, with a warning.

| variable | file instead | meaning |
|---|---|---|
";

/// The row of a secret.
fn secret((variable, meaning): &(&str, &str)) -> String {
    format!("| `{variable}` | `{variable}_FILE` | {meaning} |\n")
}

/// The commands whose settings the page lists, with their headings.
const COMMANDS: [(&str, &str); 4] = [
    ("serve", "The service: `firstcome serve`"),
    ("gate", "The gate of a site: `firstcome gate`"),
    ("lock", "Locks: `firstcome lock`"),
    ("once", "Jobs: `firstcome once`"),
];

/// Renders the page `docs/configuration.md`.
pub fn configuration_markdown() -> String {
    let mut page = HEAD.to_owned();
    page.extend(SECRETS.iter().map(secret));
    let mut program = crate::Cli::command();
    program.build();
    for (name, heading) in COMMANDS {
        let command = program.find_subcommand(name).expect("a command of ours");
        let rows = command.get_arguments().filter_map(|argument| row(name, argument)).collect::<String>();
        write!(page, "\n## {heading}\n\n| flag | variable | key in the file | meaning |\n|---|---|---|---|\n{rows}")
            .expect("a text takes it");
    }
    page
}

/// Renders one setting. Returns an empty row for an argument without a flag, and for `--help` and `--version`.
fn row(command: &str, argument: &Arg) -> Option<String> {
    let flag = argument.get_long().filter(|flag| !argument.is_hide_set() && !["help", "version"].contains(flag))?;
    let value = argument.get_value_names().filter(|_| argument.get_action().takes_values());
    let value =
        value.and_then(|names| names.first()).map(|name| format!(" {}", name.replace('|', "\\|"))).unwrap_or_default();
    let variable = argument.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
    let key = key_of(command, argument).map(|key| format!("`{key}`")).unwrap_or_default();
    let help = argument.get_help().map(|help| help.to_string().replace('|', "\\|")).unwrap_or_default();
    let defaults = argument.get_default_values().iter().map(|default| default.to_string_lossy()).collect::<Vec<_>>();
    // Some arguments name their default in the text, since it depends on other settings.
    let default = if defaults.is_empty() || help.contains("[default") || !argument.get_action().takes_values() {
        String::new()
    } else {
        format!(" [default: {}]", defaults.join(", "))
    };
    Some(format!("| `--{flag}{value}` | {variable} | {key} | {help}{default} |\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_settings_is_that_of_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let page = std::fs::read_to_string(path).expect("the page is there");
        assert!(
            page == configuration_markdown(),
            "docs/configuration.md is not that of the code: run `cargo xtask docs`"
        );
    }
}
