//! Generates the function with its body inside a lock.

use crate::function::{Argument, Function, Lending};
use crate::options::{Options, Retry, Sharing};
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use std::time::Duration;
use syn::spanned::Spanned;

/// Returns the span of names that the function's body cannot see.
fn hidden() -> Span {
    Span::mixed_site()
}

/// Returns the place of a token for compiler messages, with hidden names.
fn hidden_at(place: Span) -> Span {
    place.resolved_at(hidden())
}

pub(crate) fn expand(function: &Function, options: &Options) -> syn::Result<TokenStream> {
    let request = request(options);
    let guard = options.guard.as_ref().map(|name| quote_spanned!(hidden()=> let #name: &::firstcome::Guard = &held;));
    let attempt = attempt(function, options);
    let returned = match &options.retry {
        Some(retry) => again(&attempt, retry),
        None => attempt,
    };
    let outcome = hidden_at(function.returned().span());
    let refused = quote_spanned!(outcome=> ::firstcome::lock::attribute_support::Outcome::refused(error));
    let release = match &options.transaction {
        Some(_) => quote_spanned!(outcome=> ::firstcome::lock::attribute_support::release_concluded(held, returned)),
        None => quote_spanned!(outcome=> ::firstcome::lock::attribute_support::release(held, returned)),
    };
    let body = quote_spanned! {hidden()=>
        let held = match ::firstcome::LockRequest::acquire(#request).await {
            ::core::result::Result::Ok(held) => held,
            ::core::result::Result::Err(error) => return #refused,
        };
        #guard
        let returned = #returned;
        #release.await
    };
    let own_arguments = options.retry.is_none();
    Ok(if own_arguments { function.with_body(&body) } else { function.with_frozen_arguments().with_body(&body) })
}

fn request(options: &Options) -> TokenStream {
    let Options { key, locks, owner, demands, .. } = options;
    let wait = duration(options.wait);
    // Without one it is the default of the store: on some stores it is fixed.
    let lease = options.lease.map(duration).map(|lease| quote_spanned!(hidden()=> .lease(#lease)));
    let owner = owner.as_ref().map(|owner| quote_spanned!(hidden()=> .owner(&#owner)));
    let sharing = match options.sharing {
        Sharing::Exclusive => None,
        Sharing::Shared => Some(quote_spanned!(hidden()=> .shared())),
        Sharing::Permits(permits) => Some(quote_spanned!(hidden()=> .permits(#permits))),
    };
    let locks = quote_spanned!(hidden_at(locks.span())=> &(#locks));
    quote_spanned!(hidden()=> ::firstcome::Locks::lock(#locks, &#key).wait(#wait) #lease #owner #sharing #(.#demands())*)
}

fn duration(duration: Duration) -> TokenStream {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    quote_spanned!(hidden()=> ::core::time::Duration::from_millis(#ms))
}

/// Generates one run of the body: it evaluates to what the body returned, or to the loss of the lock.
fn attempt(function: &Function, options: &Options) -> TokenStream {
    let clones = options.retry.as_ref().map(|_| clones(function));
    let body = body(function, options);
    let run = quote_spanned!(hidden()=> ::firstcome::Guard::run(&held, #body).await);
    let Some(transaction) = &options.transaction else {
        return quote_spanned!(hidden()=> { #clones #run });
    };
    let (name, begin) = (&transaction.name, &transaction.begin);
    let begin =
        quote_spanned!(hidden_at(begin.span())=> ::firstcome::lock::attribute_support::begin(&held, #begin).await);
    quote_spanned! {hidden()=>
        match #begin {
            ::core::result::Result::Ok(::core::result::Result::Ok(mut transaction)) => {
                #clones
                let #name = &mut transaction;
                let returned = #run;
                ::firstcome::lock::attribute_support::conclude(&held, transaction, returned).await
            }
            ::core::result::Result::Ok(::core::result::Result::Err(error)) => {
                ::core::result::Result::Ok(::core::result::Result::Err(error))
            }
            ::core::result::Result::Err(lost) => ::core::result::Result::Err(lost),
        }
    }
}

/// Generates the body as a future of its own, so that `return` and `?` end only the future.
fn body(function: &Function, options: &Options) -> TokenStream {
    let (body, returned) = (&function.body, function.returned());
    // A run owns its arguments. Only `&mut self` cannot be cloned, and must remain for the next run.
    let lent = options.retry.is_some() && function.lending() == Some(Lending::Mutable);
    let capture = (!lent).then(|| quote!(move));
    quote_spanned! {hidden()=>
        async #capture {
            // Fixes the type before the first `?`, which the compiler could not infer otherwise.
            #[allow(
                unreachable_code,
                clippy::diverging_sub_expression,
                clippy::empty_loop,
                clippy::let_with_type_underscore,
                clippy::needless_return
            )]
            if false {
                let returned: #returned = loop {};
                return returned;
            }
            #body
        }
    }
}

fn clones(function: &Function) -> TokenStream {
    let clone = |argument: Argument<'_>| {
        let (name, mutability) = (argument.name, argument.mutability);
        quote_spanned! {hidden_at(name.span())=>
            #[allow(unused_variables)] // The attribute may be the only user of an argument.
            let #mutability #name = ::firstcome::lock::attribute_support::clone_for_retry(&#name);
        }
    };
    function.arguments().0.into_iter().map(clone).collect()
}

fn again(attempt: &TokenStream, retry: &Retry) -> TokenStream {
    let (count, pause) = (retry.count, duration(retry.pause));
    let conflict = quote_spanned!(hidden_at(retry.span)=> ::firstcome::lock::attribute_support::is_conflict(&returned));
    quote_spanned! {hidden()=>
        {
            let mut left: u32 = #count;
            loop {
                let returned = #attempt;
                if left == 0 || !#conflict || !::firstcome::lock::attribute_support::pause(&held, #pause).await {
                    break returned;
                }
                left -= 1;
            }
        }
    }
}
