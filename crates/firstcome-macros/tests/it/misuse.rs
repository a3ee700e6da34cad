/// Each file of `tests/ui` is a mistake; beside it is what the compiler of the pinned toolchain says.
#[test]
fn mistakes_are_explained_where_they_are() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
