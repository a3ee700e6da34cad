//! The function under the attribute.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::visit_mut::{self, VisitMut};
use syn::{
    Attribute, FnArg, Ident, Pat, PatIdent, Receiver, ReceiverKind, ReturnType, Signature, Type, Visibility, braced,
};

/// An async function, free or in an impl. Its body is never looked into.
#[derive(Clone)]
pub(crate) struct Function {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    pub(crate) signature: Signature,
    pub(crate) body: TokenStream,
}

/// An argument with a name.
pub(crate) struct Argument<'a> {
    pub(crate) name: &'a Ident,
    /// `mut`, if it is.
    pub(crate) mutability: TokenStream,
    pub(crate) ty: &'a Type,
}

/// Whether a receiver is lent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lending {
    Shared,
    Mutable,
    Given,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut attributes = input.call(Attribute::parse_outer)?;
        let (visibility, signature) = (input.parse()?, input.parse()?);
        if input.peek(syn::Token![;]) {
            return Err(input.error("the lock is taken around a body: write the attribute where the function has one"));
        }
        let content;
        braced!(content in input);
        attributes.extend(content.call(Attribute::parse_inner)?);
        Ok(Self { attributes, visibility, signature, body: content.parse()? })
    }
}

impl Function {
    /// The function with another body.
    pub(crate) fn with_body(&self, body: &TokenStream) -> TokenStream {
        let Self { attributes, visibility, signature, .. } = self;
        quote! { #(#attributes)* #visibility #signature { #body } }
    }

    /// The function with arguments of which only clones are changed, so that none is `mut` in vain.
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

    /// Refuses what can be seen to be wrong without types.
    pub(crate) fn check(&self) -> syn::Result<()> {
        if self.signature.asyncness.is_none() {
            let wanted = "a lock is waited for, so the function must be an `async fn`";
            return Err(syn::Error::new(self.signature.fn_token.span, wanted));
        }
        let wanted = "a lock may not be had, so the function must return a `Result` whose error implements \
                      `From<firstcome::LockError>`";
        match &self.signature.output {
            ReturnType::Default => Err(syn::Error::new(self.signature.ident.span(), wanted)),
            // What a path stands for only the compiler knows: a trait tells it the same.
            ReturnType::Type(_, ty) if !may_be_result(ty) => Err(syn::Error::new_spanned(ty, wanted)),
            ReturnType::Type(..) => Ok(()),
        }
    }

    pub(crate) fn receiver(&self) -> Option<&Receiver> {
        self.signature.inputs.iter().find_map(|input| if let FnArg::Receiver(it) = input { Some(it) } else { None })
    }

    /// How the receiver, if there is one, comes in.
    pub(crate) fn lending(&self) -> Option<Lending> {
        let mutable = |is_mutable: bool| if is_mutable { Lending::Mutable } else { Lending::Shared };
        self.receiver().map(|receiver| match &receiver.kind {
            ReceiverKind::Reference(_, _, mutability) => mutable(mutability.is_some()),
            ReceiverKind::Typed(_, ty) => match &**ty {
                Type::Reference(reference) => mutable(reference.mutability.is_some()),
                _ => Lending::Given,
            },
            _ => Lending::Given,
        })
    }

    /// The arguments that are plain names, and the patterns of the others.
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

    /// The names that patterns of arguments bind.
    pub(crate) fn pattern_names(&self) -> Vec<Ident> {
        let mut names = Names(Vec::new());
        for pattern in self.arguments().1 {
            names.visit_pat_mut(&mut pattern.clone());
        }
        names.0
    }

    /// The type that is returned, as it may stand in a `let`.
    pub(crate) fn returned(&self) -> Type {
        let mut returned: Type = match &self.signature.output {
            ReturnType::Type(_, ty) => (**ty).clone(),
            ReturnType::Default => syn::parse_quote!(()),
        };
        EraseImpl.visit_type_mut(&mut returned);
        returned
    }

    /// What can be named in a key, for errors.
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

/// `impl Trait` cannot stand in a `let`; what it is follows from the body.
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

/// A place in the attribute at which a name means what it means in the function.
pub(crate) fn at(place: Span, named: Span) -> Span {
    place.resolved_at(named)
}
