//! Pages of other parts of a service, beside those of the endpoint.

use std::fmt;

/// A path of the endpoint that another part of the service answers, and a table of the live page
/// that is drawn from the answers.
///
/// The answer is JSON: an object whose `rows` are objects with the same keys, which become the
/// table's columns, in the order of the list `columns` if there is one. A value may be a list of
/// objects with a `name`, a `share` from 0 to 1 and `ms`: it is drawn as bars, which unfold. The
/// answer is computed on the endpoint's thread, while other requests wait.
pub struct Part {
    pub(super) path: &'static str,
    pub(super) title: &'static str,
    pub(super) answer: Box<Answer>,
}

type Answer = dyn FnMut(&dyn Fn(&str) -> Option<String>) -> Result<String, String> + Send;

impl Part {
    /// A part at `/path`. `answer` gets a function that looks up parameters of the query, such as
    /// `rows`, the number that the page shows. Its error is the text of a response 400.
    pub fn new(
        path: &'static str,
        title: &'static str,
        answer: impl FnMut(&dyn Fn(&str) -> Option<String>) -> Result<String, String> + Send + 'static,
    ) -> Self {
        Part { path, title, answer: Box::new(answer) }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("path", &self.path).finish_non_exhaustive()
    }
}
