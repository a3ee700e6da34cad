//! The function under the attribute.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::visit_mut::{self, VisitMut};
use syn::{
    Attribute, FnArg, Ident, Pat, PatIdent, Receiver, ReceiverKind, ReturnType, Signature, Type, Visibility, braced,
};

/// An async function, free or in an impl. The macro never parses its body.
#[derive(Clone)]
pub(crate) struct Function {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    pub(crate) signature: Signature,
    pub(crate) body: TokenStream,
}

/// An argument that is a plain name.
pub(crate) struct Argument<'a> {
    pub(crate) name: &'a Ident,
    /// The token `mut`, if the argument has it.
    pub(crate) mutability: TokenStream,
    pub(crate) ty: &'a Type,
}

/// How the function takes its receiver: by reference, or by value (`Given`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lending {
    Shared,
    Mutable,
    Owned,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut attributes = input.call(Attribute::parse_outer)?;
        let (visibility, signature) = (input.parse()?, input.parse()?);
        if input.peek(syn::Token![;]) {
            return Err(input.error("`distributed_lock` needs a function with a body"));
        }
        let content;
        braced!(content in input);
        attributes.extend(content.call(Attribute::parse_inner)?);
        Ok(Self { attributes, visibility, signature, body: content.parse()? })
    }
}

impl Function {
    /// Returns the function with another body.
    pub(crate) fn with_body(&self, body: &TokenStream) -> TokenStream {
        let Self { attributes, visibility, signature, .. } = self;
        quote! { #(#attributes)* #visibility #signature { #body } }
    }

    /// Returns the function without `mut` on its arguments: with `retry` the body changes only clones of them.
    pub(crate) fn with_frozen_arguments(&self) -> Self {
        let mut frozen = self.clone();
        for input in &mut frozen.signature.inputs {
            if let FnArg::Typed(typed) = input
                && let Pat::Ident(pattern) = &mut *typed.pat
            {
                pattern.mutability = None;
            }
        }
        frozen
    }

    /// Refuses functions that are wrong as far as the macro can see without types.
    pub(crate) fn check(&self) -> syn::Result<()> {
        if self.signature.asyncness.is_none() {
            let wanted = "`distributed_lock` waits for a lock, so the function must be an `async fn`";
            return Err(syn::Error::new(self.signature.fn_token.span, wanted));
        }
        let wanted = "`distributed_lock` can fail to get the lock, so the function must return a `Result` whose error implements \
                      `From<firstcome::LockError>`";
        match &self.signature.output {
            ReturnType::Default => Err(syn::Error::new(self.signature.ident.span(), wanted)),
            // A path may be an alias, which only the compiler knows. A trait bound checks it there.
            ReturnType::Type(_, ty) if !may_be_result(ty) => Err(syn::Error::new_spanned(ty, wanted)),
            ReturnType::Type(..) => Ok(()),
        }
    }

    pub(crate) fn receiver(&self) -> Option<&Receiver> {
        self.signature.inputs.iter().find_map(|input| if let FnArg::Receiver(it) = input { Some(it) } else { None })
    }

    /// Returns how the function takes its receiver, if it has one.
    pub(crate) fn lending(&self) -> Option<Lending> {
        let mutable = |is_mutable: bool| if is_mutable { Lending::Mutable } else { Lending::Shared };
        self.receiver().map(|receiver| match &receiver.kind {
            ReceiverKind::Reference(_, _, mutability) => mutable(mutability.is_some()),
            ReceiverKind::Typed(_, ty) => match &**ty {
                Type::Reference(reference) => mutable(reference.mutability.is_some()),
                _ => Lending::Owned,
            },
            _ => Lending::Owned,
        })
    }

    /// Returns the arguments that are plain names, and the patterns of the others.
    pub(crate) fn arguments(&self) -> (Vec<Argument<'_>>, Vec<&Pat>) {
        let (mut arguments, mut patterns) = (Vec::new(), Vec::new());
        for input in &self.signature.inputs {
            let FnArg::Typed(typed) = input else { continue };
            match &*typed.pat {
                Pat::Ident(PatIdent { ident, by_ref: None, subpat: None, mutability, .. }) => {
                    arguments.push(Argument { name: ident, mutability: quote!(#mutability), ty: &typed.ty });
                }
                pattern => patterns.push(pattern),
            }
        }
        (arguments, patterns)
    }

    /// Returns the names that patterns of arguments bind.
    pub(crate) fn pattern_names(&self) -> Vec<Ident> {
        let mut names = Names(Vec::new());
        for pattern in self.arguments().1 {
            names.visit_pat_mut(&mut pattern.clone());
        }
        names.0
    }

    /// Returns the return type in a form that a `let` accepts.
    pub(crate) fn returned(&self) -> Type {
        let mut returned: Type = match &self.signature.output {
            ReturnType::Type(_, ty) => (**ty).clone(),
            ReturnType::Default => syn::parse_quote!(()),
        };
        EraseImpl.visit_type_mut(&mut returned);
        returned
    }

    /// Lists what a key can name, for errors.
    pub(crate) fn offered(&self) -> String {
        let names = self.arguments().0.into_iter().map(|argument| argument.name.to_string());
        let names: Vec<String> = self.receiver().map(|_| "self".into()).into_iter().chain(names).collect();
        match names.as_slice() {
            [] => "it has none that is a plain name".into(),
            [name] => format!("it has `{name}`"),
            names => format!("it has `{}`", names.join("`, `")),
        }
    }
}

fn may_be_result(ty: &Type) -> bool {
    match ty {
        Type::Path(_) | Type::Macro(_) => true,
        Type::Group(group) => may_be_result(&group.elem),
        Type::Paren(paren) => may_be_result(&paren.elem),
        _ => false,
    }
}

struct Names(Vec<Ident>);

impl VisitMut for Names {
    fn visit_pat_ident_mut(&mut self, pattern: &mut PatIdent) {
        self.0.push(pattern.ident.clone());
        visit_mut::visit_pat_ident_mut(self, pattern);
    }
}

/// Replaces `impl Trait` by `_`, because a `let` accepts no `impl Trait`. The compiler infers the type from the body.
struct EraseImpl;

impl VisitMut for EraseImpl {
    fn visit_type_mut(&mut self, ty: &mut Type) {
        if let Type::ImplTrait(_) = ty {
            *ty = Type::Infer(syn::parse_quote!(_));
        } else {
            visit_mut::visit_type_mut(self, ty);
        }
    }
}

/// Returns a place in the attribute at which a name resolves like in the function.
pub(crate) fn at(place: Span, named: Span) -> Span {
    place.resolved_at(named)
}
