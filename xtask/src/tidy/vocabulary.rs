//! Finds words that the code no longer uses, and counts riddles in its comments.

/// Names that say nothing about what they stand for. docs/glossary.md has the words that replaced them.
const RETIRED: [&str; 37] = [
    "Told", "Seen", "Held", "Said", "Asked", "Given", "Word", "Heard", "Look", "Looks", "Fleet", "Truth", "Mend",
    "Drain", "Scribe", "Tongue", "Shop", "Desk", "Lot", "Purse", "Tally", "Crew", "Shelf", "Ear", "Hearing", "Beating",
    "Market", "Lane", "Lanes", "Combine", "Cell", "Survey", "Wire", "Door", "Sweep", "Who", "What",
];
/// A retired word that an enum may give to a variant: a lock is held, or it is not.
const ALLOWED_VARIANT: &str = "Held";
/// A file name that says nothing about what the file holds.
const FORBIDDEN_FILE: &str = "mod.rs";
/// Words that mark a sentence without an actor.
const RIDDLES: [&str; 8] =
    ["whoever", "whatever", "whomever", "nobody", "somebody", "but for", "is to be", "are to be"];

/// Returns the name that this line defines, if it defines a type, a trait or a module.
fn defined(line: &str) -> Option<&str> {
    let mut words = line
        .split_whitespace()
        .skip_while(|word| word.starts_with("pub") || *word == "in" || word.ends_with("::super)"));
    let kind = words.next()?;
    if !["struct", "enum", "trait", "type", "mod", "union"].contains(&kind) {
        return None;
    }
    let name = words.next()?;
    Some(name.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or_default())
}

/// Returns whether a name is a retired word, in the spelling of a type or of a module.
fn is_retired(name: &str) -> bool {
    RETIRED
        .iter()
        .any(|word| name == *word || name == word.to_lowercase() || name == format!("{}s", word.to_lowercase()))
}

/// Returns the name of the enum variant that this line defines, if it stands alone on it.
fn variant(line: &str) -> Option<&str> {
    let words = line.strip_prefix("    ")?;
    let name = words.split(['(', ' ', ',']).next()?;
    let defines = words.ends_with(',') || words.ends_with('{');
    (defines && name != ALLOWED_VARIANT).then_some(name)
}

/// Finds retired words in a source file.
pub(super) fn check(name: &str, text: &str, findings: &mut Vec<String>) {
    if name.ends_with(&format!("/{FORBIDDEN_FILE}")) {
        findings.push(format!("{name}: put the module into a file beside its folder"));
    }
    for (at, line) in text.lines().enumerate() {
        let named = defined(line).filter(|found| is_retired(found));
        if let Some(found) = named.or(variant(line).filter(|found| RETIRED.contains(found))) {
            findings.push(format!("{name}:{}: {found} is a retired word: see docs/glossary.md", at + 1));
        }
    }
}

/// Counts the comment lines of a source that have a riddle.
pub(super) fn riddles(text: &str) -> usize {
    let comments = text.lines().filter_map(|line| line.trim_start().strip_prefix("//"));
    comments.filter(|comment| has_riddle(&comment.to_lowercase())).count()
}

fn has_riddle(comment: &str) -> bool {
    RIDDLES.iter().any(|riddle| {
        comment.match_indices(riddle).any(|(at, _)| {
            let whole = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric());
            whole(comment[..at].chars().next_back()) && whole(comment[at + riddle.len()..].chars().next())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retired_words_are_found_where_they_are_defined() {
        let mut findings = Vec::new();
        check(
            "a.rs",
            "pub(crate) struct Told {\nmod lanes;\nstruct ToldClaim;\nlet Told = 1;\nmod tests {",
            &mut findings,
        );
        assert_eq!(findings.len(), 2, "{findings:?}");
        check("a/mod.rs", "", &mut findings);
        assert_eq!(findings.len(), 3, "{findings:?}");
        check("a.rs", "enum Store {\n    Fleet(Servers),\n    Held(Reply),\n    Fleets,\n}\n", &mut findings);
        assert_eq!(findings.len(), 4, "{findings:?}");
    }

    #[test]
    fn riddles_are_counted_by_line() {
        assert_eq!(riddles("// Whoever waits, and nobody else.\n/// A busybody.\nlet nobody = 1;\n//! is to be\n"), 2);
    }
}
