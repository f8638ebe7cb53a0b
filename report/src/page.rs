//! The frame of an HTML page: one self-contained file.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::numbers::count;

const CSS: &str = include_str!("page/page.css");
const SORT: &str = include_str!("page/sort.js");

/// The parts in which pages differ.
#[derive(Clone, Copy, Debug)]
pub struct Page<'p> {
    /// The title shown by the browser. It is escaped.
    pub title: &'p str,
    /// The page's own styles, which follow the shared ones.
    pub css: &'p str,
    /// Whether tables of the class `sortable` can be sorted by a click on a heading. This adds the
    /// page's only script.
    pub sortable: bool,
}

impl Page<'_> {
    /// The page as HTML.
    pub fn html(&self, body: &Markup) -> String {
        let markup = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) }
                    style { (PreEscaped(CSS)) (PreEscaped(self.css)) }
                }
                body {
                    (body)
                    @if self.sortable { script { (PreEscaped(SORT)) } }
                }
            }
        };
        markup.into_string()
    }
}

/// A table that scrolls horizontally if the page is too narrow.
pub fn table(rows: &Markup) -> Markup {
    html! { div.wide { table { (rows) } } }
}

/// The same, sortable by a click on a heading.
pub fn sortable(rows: &Markup) -> Markup {
    html! { div.wide { table.sortable { (rows) } } }
}

/// A row stating how many rows of a table are not shown.
pub fn more(all: usize, shown: usize, columns: usize) -> Markup {
    html! { @if all > shown { tr { td colspan=(columns) { "and " (count((all - shown) as u64)) " more" } } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_needs_nothing_from_elsewhere_and_escapes_its_title() {
        let page = Page { title: "<b>&", css: ".own {}", sortable: true };
        let html = page.html(&more(3, 1, 2));
        assert!(html.contains("<title>&lt;b&gt;&amp;</title>"), "{html}");
        assert!(html.contains(".own {}") && html.contains("and 2 more") && html.contains("<script>"));
        assert!(!html.contains("http") && !html.contains("src=") && !html.contains("@import"), "{html}");
        assert!(!Page { sortable: false, ..page }.html(&html! {}).contains("<script>"));
    }
}
