//! Evaluates SPDX licence expressions: can this one be satisfied with accepted licences?
//!
//! The grammar is that of the SPDX specification 2.3, annex D: `+` binds tightest, then `WITH`,
//! `AND`, `OR`. Two deviations that occur in crates are accepted too: operators in lower case, and
//! `/` for `OR`, cargo's old form.

/// Whether `expression` can be satisfied if `accepts` decides on single terms. A term is an
/// identifier (`MIT`) or an identifier with an exception (`Apache-2.0 WITH LLVM-exception`). `X+`
/// is satisfied by `X`, which is one of the versions it offers.
///
/// # Errors
///
/// A sentence, if it is not an SPDX expression.
pub(super) fn satisfied(expression: &str, accepts: impl FnMut(&str) -> bool) -> Result<bool, String> {
    let mut parser = Parser { words: words(expression), next: 0, accepts };
    let result = parser.any_of()?;
    match parser.peek() {
        None => Ok(result),
        Some(word) => Err(format!("unexpected `{word}`")),
    }
}

fn words(expression: &str) -> Vec<String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    spaced.split_whitespace().map(str::to_owned).collect()
}

struct Parser<F> {
    words: Vec<String>,
    next: usize,
    accepts: F,
}

impl<F: FnMut(&str) -> bool> Parser<F> {
    // Both sides are always parsed, so that a mistake on the right is found even if the left
    // decides.
    fn any_of(&mut self) -> Result<bool, String> {
        let mut result = self.all_of()?;
        while self.take("OR") {
            result |= self.all_of()?;
        }
        Ok(result)
    }

    fn all_of(&mut self) -> Result<bool, String> {
        let mut result = self.term()?;
        while self.take("AND") {
            result &= self.term()?;
        }
        Ok(result)
    }

    fn term(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let result = self.any_of()?;
            return if self.take(")") { Ok(result) } else { Err("a `)` is missing".to_owned()) };
        }
        let id = self.identifier()?;
        let id = id.strip_suffix('+').unwrap_or(&id);
        if self.take("WITH") {
            let exception = self.identifier()?;
            return Ok((self.accepts)(&format!("{id} WITH {exception}")));
        }
        Ok((self.accepts)(id))
    }

    fn identifier(&mut self) -> Result<String, String> {
        let word = self.peek().ok_or("a licence is missing at the end")?.to_owned();
        if is_operator(&word) {
            return Err(format!("a licence is missing before `{word}`"));
        }
        if !word.chars().all(|c| c.is_ascii_alphanumeric() || "-.:+".contains(c)) {
            return Err(format!("`{word}` is not an identifier"));
        }
        self.next += 1;
        Ok(word)
    }

    fn peek(&self) -> Option<&str> {
        self.words.get(self.next).map(String::as_str)
    }

    fn take(&mut self, operator: &str) -> bool {
        let found = self.peek().is_some_and(|word| word.eq_ignore_ascii_case(operator));
        self.next += usize::from(found);
        found
    }
}

fn is_operator(word: &str) -> bool {
    ["OR", "AND", "WITH", "(", ")"].iter().any(|operator| operator.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts `A`, `B` and `A WITH E`, nothing else.
    #[track_caller]
    fn check(expression: &str, expected: bool) {
        let accepts = |term: &str| ["A", "B", "A WITH E"].contains(&term);
        assert_eq!(satisfied(expression, accepts), Ok(expected), "{expression}");
    }

    #[track_caller]
    fn check_error(expression: &str, expected: &str) {
        assert_eq!(satisfied(expression, |_| true), Err(expected.to_owned()), "{expression}");
    }

    #[test]
    fn one_licence() {
        check("A", true);
        check("X", false);
        check(" A ", true);
        check("(A)", true);
        check("A+", true);
        check("X+", false);
    }

    #[test]
    fn or_needs_one_of_its_sides() {
        check("A OR X", true);
        check("X OR A", true);
        check("X OR Y", false);
        check("X or A", true);
        check("X/A", true);
        check("X / Y", false);
    }

    #[test]
    fn and_needs_both() {
        check("A AND B", true);
        check("A AND X", false);
        check("X AND A", false);
        check("A and B", true);
    }

    #[test]
    fn and_binds_tighter_than_or() {
        check("A OR X AND Y", true); // (A OR X) AND Y would be false
        check("X AND Y OR A", true);
        check("(A OR X) AND Y", false);
        check("(X OR A) AND B", true);
        check("A AND (X OR Y)", false);
        check("A/B AND X", true);
    }

    #[test]
    fn with_makes_one_term_of_two() {
        check("A WITH E", true);
        check("B WITH E", false);
        check("A WITH F", false);
        check("X WITH E OR B", true);
        check("A+ WITH E", true);
        check("A WITH E AND X", false);
        check("A WITH F OR A", true);
    }

    #[test]
    fn what_is_no_expression_is_an_error() {
        check_error("", "a licence is missing at the end");
        check_error("A OR", "a licence is missing at the end");
        check_error("OR A", "a licence is missing before `OR`");
        check_error("A AND AND B", "a licence is missing before `AND`");
        check_error("(A OR B", "a `)` is missing");
        check_error("A OR B)", "unexpected `)`");
        check_error("A B", "unexpected `B`");
        check_error("A, B", "`A,` is not an identifier");
        check_error("A WITH", "a licence is missing at the end");
    }
}
