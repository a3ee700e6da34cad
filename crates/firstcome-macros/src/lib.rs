//! The attribute of firstcome's locks. Use it as `firstcome::distributed_lock`, which has its documentation.

mod duration;
mod expand;
mod function;
mod options;
mod template;

use function::Function;
use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Runs an async function while it holds a lock.
#[proc_macro_attribute]
pub fn distributed_lock(options: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as Function);
    let expanded = function
        .check()
        .and_then(|()| options::parse(options.into(), &function))
        .and_then(|options| expand::expand(&function, &options));
    expanded.unwrap_or_else(|error| function.with_body(&error.into_compile_error())).into()
}
