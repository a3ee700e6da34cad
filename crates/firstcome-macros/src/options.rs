//! Reads the options of the attribute.

use crate::duration::{self, Range};
use crate::function::{Function, Lending, at};
use crate::template;
use darling::FromMeta;
use darling::ast::NestedMeta;
use darling::util::Flag;
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote_spanned};
use std::time::Duration;
use syn::{Expr, Ident, Lit, LitInt, LitStr, Meta, MetaNameValue};

const WAIT_DEFAULT: Duration = Duration::from_secs(5);
const PAUSE_DEFAULT: Duration = Duration::from_millis(100);
const HOUR: Duration = Duration::from_secs(3_600);

// The library checks these two ranges again. Here the compiler reports them.
const WAIT: Range = Range { option: "wait", min: Duration::ZERO, max: HOUR, wanted: "at most 1h" };
const LEASE: Range = Range {
    option: "lease",
    min: Duration::from_millis(100),
    max: Duration::from_secs(8 * 24 * 3_600),
    wanted: "100ms to 192h",
};
/// All waiters behind the holder wait through the pause.
const PAUSE: Range = Range { option: "pause", min: Duration::ZERO, max: Duration::from_secs(60), wanted: "at most 1m" };
/// Repeated runs of the body at most: all waiters behind the holder wait for them.
const RETRY_MAX: u32 = 100;
/// Requests that share a lock at most.
const PERMITS_MAX: u32 = 1_000;

/// The options as the user wrote them.
#[derive(FromMeta)]
struct Written {
    key: LitStr,
    locks: Option<Expr>,
    owner: Option<LitStr>,
    wait: Option<Time>,
    lease: Option<Time>,
    shared: Flag,
    permits: Option<LitInt>,
    ordered: Flag,
    fenced: Flag,
    retry: Option<LitInt>,
    pause: Option<Time>,
    guard: Option<Name>,
    transaction: Option<Binding>,
}

/// The checked options.
pub(crate) struct Options {
    /// An expression of type `String`.
    pub(crate) key: TokenStream,
    pub(crate) owner: Option<TokenStream>,
    pub(crate) locks: TokenStream,
    pub(crate) wait: Duration,
    pub(crate) lease: Option<Duration>,
    pub(crate) sharing: Sharing,
    /// The methods that demand something of the store.
    pub(crate) demands: Vec<Ident>,
    pub(crate) retry: Option<Retry>,
    pub(crate) guard: Option<Ident>,
    pub(crate) transaction: Option<Binding>,
}

/// Who may hold the lock beside the function.
pub(crate) enum Sharing {
    /// No other function.
    Exclusive,
    /// Others that share it.
    Shared,
    /// Others that share it, up to this number with this one.
    Permits(u32),
}

/// Repeated runs after a conflict.
pub(crate) struct Retry {
    pub(crate) count: u32,
    pub(crate) pause: Duration,
    pub(crate) span: Span,
}

/// A time, as a string literal.
struct Time(LitStr);

/// A name that the body can use.
struct Name(Ident);

/// A name that the body can use, and the expression that begins it: `transaction(tx = self.database.begin())`.
pub(crate) struct Binding {
    pub(crate) name: Ident,
    pub(crate) begin: Expr,
}

impl FromMeta for Time {
    fn from_value(literal: &Lit) -> darling::Result<Self> {
        match literal {
            Lit::Str(text) => Ok(Self(text.clone())),
            other => Err(darling::Error::custom("write a time as text, as in \"5s\"").with_span(other)),
        }
    }
}

impl FromMeta for Name {
    fn from_expr(expression: &Expr) -> darling::Result<Self> {
        let ident = if let Expr::Path(path) = expression { path.path.get_ident().cloned() } else { None };
        let wrong = || darling::Error::custom("write a name for the body, as in `guard = held`").with_span(expression);
        ident.map(Self).ok_or_else(wrong)
    }
}

impl FromMeta for Binding {
    fn from_meta(item: &Meta) -> darling::Result<Self> {
        let wanted = "write a name for the body and what begins it, as in `transaction(tx = self.database.begin())`";
        let wrong = || darling::Error::custom(wanted).with_span(item);
        let Meta::List(list) = item else { return Err(wrong()) };
        let written: MetaNameValue = list.parse_args().map_err(|_| wrong())?;
        let name = written.path.get_ident().cloned().ok_or_else(wrong)?;
        Ok(Self { name, begin: written.value })
    }
}

/// Reads the options and checks them against the function.
pub(crate) fn parse(tokens: TokenStream, function: &Function) -> syn::Result<Options> {
    let written = Written::from_list(&NestedMeta::parse_meta_list(tokens)?)?;
    let owner = written.owner.as_ref().map(|owner| template::parse("owner", owner, function));
    let options = Options {
        key: template::parse("key", &written.key, function)?,
        owner: owner.transpose()?,
        locks: locks(written.locks, function)?,
        wait: time(written.wait.as_ref(), &WAIT, WAIT_DEFAULT)?,
        lease: written.lease.as_ref().map(|lease| duration::parse(&lease.0, &LEASE)).transpose()?,
        sharing: sharing(written.shared, written.permits.as_ref())?,
        demands: demands(written.ordered, written.fenced),
        retry: retry(written.retry.as_ref(), written.pause.as_ref(), function)?,
        guard: written.guard.map(|name| name.0),
        transaction: written.transaction,
    };
    check_names(&options, function)?;
    if let Some(transaction) = &options.transaction {
        check_self(transaction.begin.to_token_stream(), function)?;
    }
    Ok(options)
}

fn time(written: Option<&Time>, range: &Range, default: Duration) -> syn::Result<Duration> {
    written.map_or(Ok(default), |time| duration::parse(&time.0, range))
}

fn locks(written: Option<Expr>, function: &Function) -> syn::Result<TokenStream> {
    match (written, function.receiver()) {
        (Some(locks), _) => {
            check_self(locks.to_token_stream(), function)?;
            Ok(locks.into_token_stream())
        }
        (None, Some(receiver)) => {
            let this = Ident::new("self", at(Span::call_site(), receiver.self_token.span));
            Ok(quote_spanned!(Span::call_site()=> #this.locks))
        }
        (None, None) => {
            let wanted = "say where the locks are, as in `locks = locks` for an argument of type `&Locks`; only a method \
                          has a default, which is `self.locks`";
            Err(syn::Error::new(Span::call_site(), wanted))
        }
    }
}

fn sharing(shared: Flag, permits: Option<&LitInt>) -> syn::Result<Sharing> {
    let Some(literal) = permits else {
        return Ok(if shared.is_present() { Sharing::Shared } else { Sharing::Exclusive });
    };
    if shared.is_present() {
        let wanted = "`permits` bounds how many share the lock, and `shared` does not: choose one";
        return Err(syn::Error::new(shared.span(), wanted));
    }
    let permits = literal.base10_parse().ok().filter(|permits| (1..=PERMITS_MAX).contains(permits));
    let wrong = || syn::Error::new(literal.span(), format!("permits must be 1 to {PERMITS_MAX}"));
    permits.map(Sharing::Permits).ok_or_else(wrong)
}

fn demands(ordered: Flag, fenced: Flag) -> Vec<Ident> {
    let named = [(ordered, "ordered"), (fenced, "fenced")];
    named.into_iter().filter(|(flag, _)| flag.is_present()).map(|(flag, name)| Ident::new(name, flag.span())).collect()
}

fn retry(count: Option<&LitInt>, pause: Option<&Time>, function: &Function) -> syn::Result<Option<Retry>> {
    let Some(literal) = count else {
        let without = |pause: &Time| Err(syn::Error::new(pause.0.span(), "a pause is made before a `retry`: add one"));
        return pause.map_or(Ok(None), without);
    };
    let pause = time(pause, &PAUSE, PAUSE_DEFAULT)?;
    let Some(count) = literal.base10_parse().ok().filter(|count| *count <= RETRY_MAX) else {
        return Err(syn::Error::new(literal.span(), format!("retry must be 0 to {RETRY_MAX}")));
    };
    if count == 0 {
        return Ok(None);
    }
    can_run_again(function)?;
    Ok(Some(Retry { count, pause, span: literal.span() }))
}

/// Checks that the body can run again, with the same receiver and clones of the arguments.
fn can_run_again(function: &Function) -> syn::Result<()> {
    if let Some(receiver) = function.receiver().filter(|_| function.lending() == Some(Lending::Owned)) {
        let wanted = "`retry` runs the body again, so it must take `&self` or `&mut self`";
        return Err(syn::Error::new_spanned(receiver, wanted));
    }
    let (arguments, patterns) = function.arguments();
    if let Some(pattern) = patterns.into_iter().find(|pattern| !matches!(pattern, syn::Pat::Wild(_))) {
        let wanted = "`retry` runs the body again with clones of the arguments, so each needs a name of its own";
        return Err(syn::Error::new_spanned(pattern, wanted));
    }
    for argument in arguments {
        if matches!(argument.ty, syn::Type::Reference(reference) if reference.mutability.is_some()) {
            let wanted = "`retry` runs the body again with clones of the arguments, and `&mut` cannot be cloned";
            return Err(syn::Error::new_spanned(argument.ty, wanted));
        }
    }
    Ok(())
}

/// Checks that the names which the attribute binds hide no argument.
fn check_names(options: &Options, function: &Function) -> syn::Result<()> {
    let mut taken = function.pattern_names();
    taken.extend(function.arguments().0.into_iter().map(|argument| argument.name.clone()));
    for name in options.guard.iter().chain(options.transaction.as_ref().map(|transaction| &transaction.name)) {
        if taken.contains(name) {
            return Err(syn::Error::new(name.span(), format!("`{name}` is taken: choose another name")));
        }
        taken.push(name.clone());
    }
    Ok(())
}

/// Checks that `self` occurs only in methods.
fn check_self(tokens: TokenStream, function: &Function) -> syn::Result<()> {
    match function.receiver().is_none().then(|| find_self(tokens)).flatten() {
        Some(span) => Err(syn::Error::new(span, format!("the function takes no `self`; {}", function.offered()))),
        None => Ok(()),
    }
}

fn find_self(tokens: TokenStream) -> Option<Span> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Group(group) => find_self(group.stream()),
        TokenTree::Ident(ident) if ident == "self" => Some(ident.span()),
        _ => None,
    })
}
