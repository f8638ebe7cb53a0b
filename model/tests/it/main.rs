//! Reading real and hostile files through the public interface.

mod collected;
mod htrace;
mod nezha_csv;
mod source;
