//! Names of locks with arguments in them: `AUCTION:{command.auction_id}`.

use crate::function::{Function, at};
use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::quote_spanned;
use syn::{Expr, Ident, LitStr, Member};

/// The limit of the core.
const NAME_BYTES_MAX: usize = 128;

/// Literal text and values, which alternate.
#[derive(Default)]
struct Template {
    /// The format string for `format!`.
    format: String,
    /// The literal text alone.
    text: String,
    values: Vec<Expr>,
}

/// Makes an expression of type `String` that inserts the arguments.
pub(crate) fn parse(option: &str, literal: &LitStr, function: &Function) -> syn::Result<TokenStream> {
    let refuse = |why: String| syn::Error::new(literal.span(), format!("{option}: {why}"));
    let (text, mut template) = (literal.value(), Template::default());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(['{', '}']) {
        let (before, brace, after) = (&rest[..at], &rest[at..=at], &rest[at + 1..]);
        template.push_text(before).map_err(refuse)?;
        if let Some(after) = after.strip_prefix(brace) {
            template.push_text(brace).map_err(refuse)?;
            rest = after;
            continue;
        }
        if brace == "}" {
            return Err(refuse("a `}` without its `{`".into()));
        }
        let Some(end) = after.find(['{', '}']).filter(|end| after[*end..].starts_with('}')) else {
            return Err(refuse("a `{` without its `}`".into()));
        };
        template.push_value(value(&after[..end], literal.span(), function).map_err(refuse)?);
        rest = &after[end + 1..];
    }
    template.push_text(rest).map_err(refuse)?;
    if template.format.is_empty() {
        return Err(refuse("must not be empty".into()));
    }
    if NAME_BYTES_MAX < template.text.len() {
        return Err(refuse(format!("a name has at most {NAME_BYTES_MAX} bytes")));
    }
    let Template { format, values, .. } = template;
    let span = literal.span().resolved_at(Span::mixed_site());
    Ok(quote_spanned!(span=> ::std::format!(#format, #(#values),*)))
}

impl Template {
    /// Appends literal text, and checks it by the rules of names as far as possible here. A name has no braces; the parser
    /// accepts `{{` only so that this error can name the wrong character.
    fn push_text(&mut self, text: &str) -> Result<(), String> {
        let allowed = |character: char| character.is_ascii_alphanumeric() || "._:@-".contains(character);
        if let Some(bad) = text.chars().find(|character| !allowed(*character)) {
            return Err(format!("a name may hold only A-Z a-z 0-9 . _ : @ -, and not `{bad}`"));
        }
        if self.format.is_empty() && text.starts_with(|first: char| !first.is_ascii_alphanumeric()) {
            return Err("a name must begin with a letter or a digit".into());
        }
        self.text.push_str(text);
        self.format.push_str(text);
        Ok(())
    }

    fn push_value(&mut self, value: Expr) {
        self.format.push_str("{}");
        self.values.push(value);
    }
}

/// Parses an argument, or a field or method of one. Its spans point to the literal, so that compiler errors do too.
fn value(text: &str, place: Span, function: &Function) -> Result<Expr, String> {
    let shape =
        || format!("`{{{text}}}` must name an argument, or a field or method in one, as in `{{command.auction.id()}}`");
    let tokens: TokenStream = text.parse().map_err(|_| shape())?;
    let mut expression: Expr = syn::parse2(moved(tokens, place)).map_err(|_| shape())?;
    let root = root_of(&mut expression).ok_or_else(shape)?;
    let named = if root == "self" {
        function.receiver().map(|receiver| receiver.self_token.span)
    } else {
        let (arguments, _) = function.arguments();
        arguments.iter().find(|argument| argument.name == root).map(|argument| argument.name.span())
    };
    let Some(named) = named else {
        let offered = function.offered();
        return Err(if function.pattern_names().contains(root) {
            format!("`{root}` is bound by a pattern, and a key names whole arguments: give that one a name ({offered})")
        } else {
            format!("the function has no argument `{root}`; {offered}")
        });
    };
    root.set_span(at(place, named));
    Ok(expression)
}

/// Returns the name at which a path of fields and methods begins; `None` for any other expression.
fn root_of(expression: &mut Expr) -> Option<&mut Ident> {
    match expression {
        Expr::Path(path) if path.qself.is_none() && path.path.get_ident().is_some() => {
            path.path.segments.first_mut().map(|segment| &mut segment.ident)
        }
        Expr::Field(field) if matches!(field.member, Member::Named(_) | Member::Unnamed(_)) => root_of(&mut field.base),
        Expr::MethodCall(call) if call.args.is_empty() && call.turbofish.is_none() => root_of(&mut call.receiver),
        _ => None,
    }
}

fn moved(tokens: TokenStream, place: Span) -> TokenStream {
    let token = |token: TokenTree| match token {
        TokenTree::Group(group) => {
            let mut group = Group::new(group.delimiter(), moved(group.stream(), place));
            group.set_span(place);
            TokenTree::Group(group)
        }
        mut token => {
            token.set_span(place);
            token
        }
    };
    tokens.into_iter().map(token).collect()
}
