//! The public surface of the libraries, in checked files: a change of it is seen in review.
//!
//! The lint `unreachable_pub` lets an item be `pub` only if a user can reach it. So the surface of a crate is all that
//! its files declare `pub`, and no path needs to be resolved.

use crate::shell::{self, Outcome};
use quote::ToTokens;
use std::fs;
use std::path::{Path, PathBuf};
use syn::{Attribute, Fields, ImplItem, Item, TraitItem, Visibility};

/// The crates whose surface users build on.
const CRATES: [&str; 11] = [
    "firstcome",
    "firstcome-client",
    "firstcome-cluster",
    "firstcome-core",
    "firstcome-etcd",
    "firstcome-macros",
    "firstcome-redis",
    "firstcome-sql",
    "firstcome-sqlite",
    "firstcome-store",
    "firstcome-tls",
];

/// Compares the surface of each crate with its file.
pub(super) fn check(findings: &mut Vec<String>) -> Outcome {
    for name in CRATES {
        let (Some(now), file) = (of_crate(name)?, file_of(name)) else { continue };
        let known = fs::read_to_string(&file).unwrap_or_default();
        if let Some(line) = difference(&known, &now) {
            findings.push(format!(
                "the public surface of {name} has changed, first at {line}; see it with `cargo xtask docs`"
            ));
        }
    }
    Ok(())
}

/// Writes the surface of each crate into its file.
pub(crate) fn write() -> Outcome {
    for name in CRATES {
        let (Some(now), file) = (of_crate(name)?, file_of(name)) else { continue };
        fs::write(&file, now).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}

fn file_of(name: &str) -> PathBuf {
    shell::root().join("docs/surface").join(format!("{name}.txt"))
}

/// The first line that one of the texts has and the other has not.
fn difference(known: &str, now: &str) -> Option<String> {
    let (known, now): (Vec<&str>, Vec<&str>) = (known.lines().collect(), now.lines().collect());
    let of = |line: Option<&&str>, mark| line.map(|line| format!("`{mark}{line}`"));
    let at = known.iter().zip(&now).take_while(|(known, now)| known == now).count();
    match (known.get(at), now.get(at)) {
        (None, None) => None,
        (Some(gone), Some(new)) if now.contains(gone) || !known.contains(new) => of(Some(new), "+"),
        (gone, new) => of(gone, "-").or_else(|| of(new, "+")),
    }
}

/// Returns the surface, one item a line. `None` if there is no such crate.
fn of_crate(name: &str) -> Result<Option<String>, String> {
    let src = shell::root().join("crates").join(name).join("src");
    if !src.is_dir() {
        return Ok(None);
    }
    let mut files = Vec::new();
    find(&src, &mut files)?;
    let mut lines = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let parsed = syn::parse_file(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        let module = file.strip_prefix(&src).unwrap_or(&file).with_extension("");
        let module = module.to_string_lossy().replace('/', "::");
        let module = if module == "lib" { String::new() } else { format!("{module}: ") };
        let mut found = Vec::new();
        parsed.items.iter().for_each(|item| read(item, &mut found));
        lines.extend(found.into_iter().map(|line| format!("{module}{line}")));
    }
    lines.sort_unstable();
    Ok(Some(lines.join("\n") + "\n"))
}

pub(super) fn find(directory: &Path, files: &mut Vec<PathBuf>) -> Outcome {
    let entries = fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
        if path.is_dir() && !is_test {
            find(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "rs") && !is_test {
            files.push(path);
        }
    }
    Ok(())
}

/// Adds the lines of one item.
fn read(item: &Item, lines: &mut Vec<String>) {
    match item {
        Item::Fn(item) if shows(&item.vis, &item.attrs) => lines.push(line(&item.attrs, &item.sig)),
        Item::Struct(item) if shows(&item.vis, &item.attrs) => {
            let (name, generics) = (&item.ident, &item.generics);
            lines.push(format!("{}struct {name}{}", marks(&item.attrs), text(generics)));
            for (at, field) in item.fields.iter().enumerate().filter(|(_, field)| shows(&field.vis, &field.attrs)) {
                let field_name = field.ident.as_ref().map_or_else(|| at.to_string(), ToString::to_string);
                lines.push(format!("{name}.{field_name}: {}", text(&field.ty)));
            }
        }
        Item::Enum(item) if shows(&item.vis, &item.attrs) => {
            let name = &item.ident;
            lines.push(format!("{}enum {name}{}", marks(&item.attrs), text(&item.generics)));
            lines.extend(
                item.variants.iter().map(|variant| format!("{name}::{}{}", variant.ident, fields(&variant.fields))),
            );
        }
        Item::Trait(item) if shows(&item.vis, &item.attrs) => {
            let name = &item.ident;
            lines.push(format!(
                "{}trait {name}{}: {}",
                marks(&item.attrs),
                text(&item.generics),
                text(&item.supertraits)
            ));
            for inner in &item.items {
                match inner {
                    TraitItem::Fn(inner) => lines.push(format!("{name}::{}", line(&inner.attrs, &inner.sig))),
                    TraitItem::Type(inner) => lines.push(format!("{name}::{}", text(inner).trim_end_matches(';'))),
                    TraitItem::Const(inner) => {
                        lines.push(format!("{name}::const {}: {}", inner.ident, text(&inner.ty)));
                    }
                    _ => {}
                }
            }
        }
        Item::Impl(item) => read_impl(item, lines),
        Item::Type(item) if shows(&item.vis, &item.attrs) => {
            lines.push(format!(
                "{}type {}{} = {}",
                marks(&item.attrs),
                item.ident,
                text(&item.generics),
                text(&item.ty)
            ));
        }
        Item::Const(item) if shows(&item.vis, &item.attrs) => {
            lines.push(format!("{}const {}: {}", marks(&item.attrs), item.ident, text(&item.ty)));
        }
        Item::Use(item) if shows(&item.vis, &item.attrs) => {
            lines.push(format!("{}use {}", marks(&item.attrs), text(&item.tree)));
        }
        Item::Mod(item) if !is_hidden(&item.attrs) => {
            if matches!(item.vis, Visibility::Public(_)) {
                lines.push(format!("{}mod {}", marks(&item.attrs), item.ident));
            }
            item.content.iter().flat_map(|(_, items)| items).for_each(|item| read(item, lines));
        }
        _ => {}
    }
}

fn read_impl(item: &syn::ItemImpl, lines: &mut Vec<String>) {
    if is_hidden(&item.attrs) {
        return;
    }
    let of = text(&item.self_ty);
    // Which traits a private type implements is no part of the surface, but cannot be told apart here.
    if let Some((of_trait, _)) = &item.trait_ {
        lines.push(format!("{}impl {} for {of}", marks(&item.attrs), text(of_trait)));
        return;
    }
    for inner in &item.items {
        match inner {
            ImplItem::Fn(inner) if shows(&inner.vis, &inner.attrs) => {
                lines.push(format!("{of}::{}", line(&inner.attrs, &inner.sig)));
            }
            ImplItem::Const(inner) if shows(&inner.vis, &inner.attrs) => {
                lines.push(format!("{of}::const {}: {}", inner.ident, text(&inner.ty)));
            }
            _ => {}
        }
    }
}

pub(super) fn shows(visible: &Visibility, attributes: &[Attribute]) -> bool {
    matches!(visible, Visibility::Public(_)) && !is_hidden(attributes)
}

/// Whether tests alone, or no documentation, have an item.
fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().map(text).any(|attribute| attribute == "#[cfg(test)]" || attribute == "#[doc(hidden)]")
}

/// The attributes that a caller notices.
fn marks(attributes: &[Attribute]) -> String {
    let noticed = |text: &String| ["#[cfg", "#[non_exhaustive", "#[must_use"].iter().any(|mark| text.starts_with(mark));
    let mut marks = String::new();
    for mark in attributes.iter().map(text).filter(noticed) {
        // Why it must be used may be reworded.
        marks.push_str(if mark.starts_with("#[must_use") { "#[must_use]" } else { &mark });
        marks.push(' ');
    }
    marks
}

fn line(attributes: &[Attribute], signature: &syn::Signature) -> String {
    format!("{}{}", marks(attributes), text(signature))
}

fn fields(fields: &Fields) -> String {
    match fields {
        Fields::Unit => String::new(),
        Fields::Unnamed(fields) => {
            let types: Vec<String> = fields.unnamed.iter().map(|field| text(&field.ty)).collect();
            format!("({})", types.join(", "))
        }
        Fields::Named(fields) => {
            let named =
                fields.named.iter().filter_map(|field| Some(format!("{}: {}", field.ident.as_ref()?, text(&field.ty))));
            format!(" {{ {} }}", named.collect::<Vec<_>>().join(", "))
        }
    }
}

/// The tokens of a piece of code, with the spaces that people write.
fn text(code: &impl ToTokens) -> String {
    let mut text = code.to_token_stream().to_string().replace('\n', " ");
    for (spaced, written) in [
        (" :: ", "::"),
        (":: ", "::"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        (" ,", ","),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        ("[ ", "["),
        (" ]", "]"),
        ("# [", "#["),
        ("& ", "&"),
        (" : ", ": "),
        (" ;", ";"),
        ("->", " ->"),
        ("  ", " "),
        ("- >", "->"),
        (",)", ")"),
        (", >", ">"),
    ] {
        text = text.replace(spaced, written);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surface(source: &str) -> Vec<String> {
        let mut lines = Vec::new();
        syn::parse_file(source).expect("it is Rust").items.iter().for_each(|item| read(item, &mut lines));
        lines
    }

    #[test]
    fn all_that_is_public_has_a_line_and_nothing_else() {
        let lines = surface(
            "pub struct Seat<T> { pub row: u32, place: T }
             impl<T: Clone> Seat<T> { #[must_use = \"so\"] pub async fn take(&self, by: &str) -> Result<T, Full> { todo() } fn own(&self) {} }
             #[non_exhaustive] pub enum Full { Now, Until { at: u64 } }
             #[cfg(feature = \"x\")] pub use other::{Thing, more};
             pub(crate) fn inner() {}
             #[doc(hidden)] pub fn hidden() {}
             #[cfg(test)] mod tests { pub fn of_tests() {} }
             impl From<u8> for Full { fn from(_: u8) -> Self { Self::Now } }",
        );
        let wanted = [
            "struct Seat<T>",
            "Seat.row: u32",
            "Seat<T>::#[must_use] async fn take(&self, by: &str) -> Result<T, Full>",
            "#[non_exhaustive] enum Full",
            "Full::Now",
            "Full::Until { at: u64 }",
            "#[cfg(feature = \"x\")] use other::{ Thing, more }",
            "impl From<u8> for Full",
        ];
        assert_eq!(lines, wanted);
    }

    #[test]
    fn the_first_difference_is_named() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(difference("a\nc\n", "a\nb\nc\n").as_deref(), Some("`+b`"));
        assert_eq!(difference("a\nb\nc\n", "a\nc\n").as_deref(), Some("`-b`"));
        assert_eq!(difference("a\n", "a\nb\n").as_deref(), Some("`+b`"));
    }
}
