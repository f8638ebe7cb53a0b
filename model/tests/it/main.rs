//! Reading real and hostile files through the public interface.

mod collected;
mod convert;
mod htrace;
mod jaeger_json;
mod nezha_csv;
mod source;
mod zipkin_json;
