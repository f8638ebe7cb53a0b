//! The frame of an HTML page: one self-contained file, whose first screen has one sentence, one
//! picture and the next command.
//!
//! A page loads nothing, and its Content-Security-Policy allows only the styles and the scripts in
//! it, by their hashes. Therefore no element has a `style` attribute.

use base64::Engine as _;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

use crate::numbers::count;

/// The styles of all pages, for pages that are made elsewhere.
pub const CSS: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// The colour of the answer's edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Grey.
    #[default]
    Plain,
    /// Something to look at.
    Bad,
    /// Our own result.
    Ours,
}

/// A command to run next, and what it is for: "See the traces behind a row".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// The purpose, without a colon.
    pub purpose: String,
    /// The command as a shell reads it.
    pub command: String,
}

impl Next {
    /// A command with its purpose.
    pub fn new(purpose: impl Into<String>, command: impl Into<String>) -> Self {
        Self { purpose: purpose.into(), command: command.into() }
    }
}

/// The parts in which pages differ. Strings are escaped.
#[derive(Clone, Debug)]
pub struct Page<'p> {
    /// The title shown by the browser.
    pub title: &'p str,
    /// The command and its recordings, in small type above the answer.
    pub about: &'p str,
    /// The answer in one sentence.
    pub answer: &'p str,
    /// The certainty of the answer, and its picture.
    pub picture: Markup,
    /// The colour of the answer's edge.
    pub tone: Tone,
    /// The commands to run next.
    pub next: &'p [Next],
    /// A script besides the one that sorts tables.
    pub script: Option<&'p str>,
}

impl Page<'_> {
    /// The page as HTML.
    pub fn html(&self, body: &Markup) -> String {
        let scripts = || [SCRIPT].into_iter().chain(self.script);
        let allowed: String = scripts().map(hash).collect();
        let policy = format!(
            "default-src 'none'; base-uri 'none'; form-action 'none'; style-src{}; script-src{allowed}",
            hash(CSS)
        );
        let markup = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(policy);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) }
                    style { (PreEscaped(CSS)) }
                }
                body {
                    main {
                        header {
                            p.about { (self.about) }
                            h1 { (self.answer) }
                        }
                        section.answer.bad[self.tone == Tone::Bad].ours[self.tone == Tone::Ours] aria-label="Answer" {
                            (self.picture)
                            @if !self.next.is_empty() {
                                div.next { @for next in self.next { div { (next.purpose) ": " code { (next.command) } } } }
                            }
                        }
                        (body)
                    }
                    @for script in scripts() { script { (PreEscaped(script)) } }
                }
            }
        };
        markup.into_string()
    }
}

/// The source expression that allows a script or a style sheet of this text.
fn hash(text: &str) -> String {
    format!(" 'sha256-{}'", base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text)))
}

/// A table that scrolls by itself if the page is too narrow. The first row is its heading, by which
/// the page's script sorts.
pub fn table(name: &str, rows: &Markup) -> Markup {
    html! { div.wide tabindex="0" role="region" aria-label=(name) { table { (rows) } } }
}

/// A line stating how many rows of a table are not shown. It is outside the table, so that it is
/// not sorted.
pub fn more(all: usize, shown: usize) -> Markup {
    html! { @if all > shown { p.note { "and " (count((all - shown) as u64)) " more" } } }
}

/// A part that is folded under one line.
pub fn folded(summary: &str, body: &Markup) -> Markup {
    html! { details { summary { (summary) } (body) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page<'p>(next: &'p [Next], script: Option<&'p str>) -> Page<'p> {
        let (picture, tone) = (html! { p { "sure" } }, Tone::Bad);
        Page { title: "<b>&", about: "astracer", answer: "It <is>", picture, tone, next, script }
    }

    #[test]
    fn a_page_needs_nothing_from_elsewhere_and_escapes_its_title() {
        let next = [Next::new("Look", "astracer inspect 'a<b'")];
        let html = page(&next, None).html(&more(3, 1));
        assert!(html.contains("<title>&lt;b&gt;&amp;</title>") && html.contains("It &lt;is&gt;"), "{html}");
        assert!(html.contains("and 2 more") && html.contains("<code>astracer inspect 'a&lt;b'</code>"));
        assert!(!html.contains("http:") && !html.contains("src=\"") && !html.contains("@import"), "{html}");
        assert!(!html.contains("unsafe-inline") && !html.contains(" style="), "{html}");
    }

    /// `printf 'alert(1)' | openssl dgst -sha256 -binary | base64`
    #[test]
    fn only_the_scripts_of_the_page_may_run() {
        let html = page(&[], Some("alert(1)")).html(&html! {});
        assert!(html.contains("'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='"), "{html}");
        assert_eq!(html.matches("<script>").count(), 2);
    }
}
