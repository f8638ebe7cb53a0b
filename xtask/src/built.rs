//! The part of a package that a step compiles.

/// The targets of a package that a step compiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Built {
    Nothing,
    /// The library and the programs, as a dependency or a release is built.
    Program,
    /// The same with the unit tests in it.
    UnitTests,
    /// The library and its benchmarks.
    Benches,
    /// Everything, with data of tests.
    Tests,
}

impl Built {
    pub(crate) fn program_if(is_built: bool) -> Built {
        if is_built { Built::Program } else { Built::Nothing }
    }

    pub(crate) fn has_dev_dependencies(self) -> bool {
        self >= Built::UnitTests
    }
}
