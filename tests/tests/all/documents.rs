//! The parameters files that the documents show are files that a service loads.

use astracer_samplers::parameters::Parameters;

#[test]
fn parameters_files_in_documents_can_be_loaded() {
    let mut files = 0;
    for document in ["docs/parameters.md", "docs/sampling.md"] {
        let text = std::fs::read_to_string(crate::repository(document)).expect("the document");
        for block in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            // Others show a part of a file.
            if block.contains("version = ") {
                block.parse::<Parameters>().unwrap_or_else(|error| panic!("{document}: {error}\n{block}"));
                files += 1;
            }
        }
    }
    assert!(files >= 3, "{files}");
}
