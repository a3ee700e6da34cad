//! Renders the page of all settings from the arguments of the commands and the keys of the file.

use super::File;
use clap::{Arg, CommandFactory};
use std::fmt::Write;

/// The text above the tables. The keys of callers and the secret have no flag, so no argument describes them.
const HEAD: &str = "\
# Configuration

`cargo xtask docs` writes this page from the code.

A setting comes from its flag, then from its environment variable, then from `firstcome.toml`, then from its default. `--config` names another file. A
file with an unknown key is refused. Durations are written as `250ms`, `9s`, `5m`, `1h`. A key of the file that takes a list is an array of texts.

```toml
listen = \"0.0.0.0:8080\"
data = \"/var/lib/firstcome\"
trusted-proxy = [\"10.0.0.0/8\"]
stop-grace = \"10s\"
```

## Secrets

These have no flag, so that they are in no list of processes.

| variable | file instead | meaning |
|---|---|---|
| `FIRSTCOME_ADMIN_KEY` | `FIRSTCOME_ADMIN_KEY_FILE` | the admin key of callers |
| `FIRSTCOME_SERVICE_KEYS` | `FIRSTCOME_SERVICE_KEYS_FILE` | service keys, separated by commas |
| `FIRSTCOME_VIEW_KEYS` | `FIRSTCOME_VIEW_KEYS_FILE` | keys that may only view, on the dashboard and over HTTP, separated by commas |
| `FIRSTCOME_SECRET` | `FIRSTCOME_SECRET_FILE`, `--secret-file` | the secret of a cluster: at least 32 random bytes in base64, the same on every node |
";

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
    let keys = file_keys();
    let mut program = crate::Cli::command();
    program.build();
    for (name, heading) in COMMANDS {
        let command = program.find_subcommand(name).expect("a command of ours");
        let rows = command.get_arguments().filter_map(|argument| row(name, argument, &keys)).collect::<String>();
        write!(page, "\n## {heading}\n\n| flag | variable | key in the file | meaning |\n|---|---|---|---|\n{rows}")
            .expect("a text takes it");
    }
    page
}

/// Renders one setting. Returns an empty row for an argument without a flag, and for `--help` and `--version`.
fn row(command: &str, argument: &Arg, keys: &[String]) -> Option<String> {
    let flag = argument.get_long().filter(|flag| !argument.is_hide_set() && !["help", "version"].contains(flag))?;
    let value = argument.get_value_names().filter(|_| argument.get_action().takes_values());
    let value =
        value.and_then(|names| names.first()).map(|name| format!(" {}", name.replace('|', "\\|"))).unwrap_or_default();
    let variable = argument.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
    // The key of the file is that of the service, which is another port of a gate.
    let named = match (command, flag) {
        ("gate", "listen") => "",
        ("gate", "service-listen") => "listen",
        _ => flag,
    };
    let key = keys.iter().find(|key| *key == named).map(|key| format!("`{key}`")).unwrap_or_default();
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

/// Returns the keys of `firstcome.toml`: the parser lists them all when it refuses an unknown one.
fn file_keys() -> Vec<String> {
    let refused = toml::from_str::<File>("no-such-key = 1");
    let refusal = refused.err().expect("no setting has this name").to_string();
    let listed = refusal.split("expected one of").nth(1).expect("the refusal lists the keys");
    listed.split('`').skip(1).step_by(2).map(str::to_owned).collect()
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

    #[test]
    fn every_key_of_the_file_is_on_the_page() {
        let (page, keys) = (configuration_markdown(), file_keys());
        assert!(keys.len() > 10, "{keys:?}");
        for key in keys {
            assert!(page.contains(&format!("| `{key}` |")), "{key} is on no line");
        }
    }
}
