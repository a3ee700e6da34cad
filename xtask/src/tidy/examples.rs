//! Every public type, trait and function of the library shows an example, links to where one is, or stands in a module
//! that shows one.

use crate::shell::{self, Outcome};
use std::fs;
use std::path::Path;
use syn::{Attribute, Expr, ExprLit, Item, Lit, Meta};

/// What only the expansion of the attribute calls.
const HIDDEN: &str = "attribute_support.rs";

/// Reads the sources of the library.
pub(super) fn check(findings: &mut Vec<String>) -> Outcome {
    let src = shell::root().join("crates/firstcome/src");
    let mut files = Vec::new();
    super::surface::find(&src, &mut files)?;
    for file in files.into_iter().filter(|file| !file.ends_with(HIDDEN)) {
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        read(&file, &text, findings)?;
    }
    Ok(())
}

fn read(file: &Path, text: &str, findings: &mut Vec<String>) -> Outcome {
    let parsed = syn::parse_file(text).map_err(|error| format!("{}: {error}", file.display()))?;
    if docs(&parsed.attrs).contains("```") {
        return Ok(());
    }
    for item in &parsed.items {
        let (visible, attributes, name) = match item {
            Item::Struct(item) => (&item.vis, &item.attrs, &item.ident),
            Item::Enum(item) => (&item.vis, &item.attrs, &item.ident),
            Item::Trait(item) => (&item.vis, &item.attrs, &item.ident),
            Item::Fn(item) => (&item.vis, &item.attrs, &item.sig.ident),
            _ => continue,
        };
        if super::surface::shows(visible, attributes) && !guides(&docs(attributes)) {
            let file = file.strip_prefix(shell::root()).unwrap_or(file).display();
            findings.push(format!("{file}: {name} has no example, and no link to one"));
        }
    }
    Ok(())
}

fn docs(attributes: &[Attribute]) -> String {
    let mut docs = String::new();
    for attribute in attributes {
        if let Meta::NameValue(written) = &attribute.meta
            && written.path.is_ident("doc")
            && let Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) = &written.value
        {
            docs.push_str(&line.value());
            docs.push('\n');
        }
    }
    docs
}

fn guides(docs: &str) -> bool {
    ["```", "[`", "]("].iter().any(|mark| docs.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_without_an_example_is_named() {
        let mut findings = Vec::new();
        let source = "
            /// Shown.\n/// ```\n/// one();\n/// ```\npub fn one() {}
            /// Made by [`one`].\npub struct Two;
            /// Says nothing.\npub enum Three {}
            /// Inner.\npub(crate) fn four() {}
            /// Hidden.\n#[doc(hidden)]\npub trait Five {}
            pub trait Six {}";
        read(Path::new("lib.rs"), source, &mut findings).unwrap();
        let wanted = ["Three", "Six"].map(|name| format!("lib.rs: {name} has no example, and no link to one"));
        assert_eq!(findings, wanted);
        read(Path::new("lib.rs"), "//! ```\n//! one();\n//! ```\npub struct Two;", &mut findings).unwrap();
        assert_eq!(findings, wanted, "the module shows one");
    }
}
