//! Ids and bytes, which JSON represents as text.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::{Cursor, Fault};
use astracer_model::ids::{SpanId, TraceId};

impl Cursor<'_> {
    /// Reads a trace id: hexadecimal, or base64 as protobuf's own JSON writes bytes. Empty and `null` are
    /// [`TraceId::ZERO`].
    pub(crate) fn trace_id(&mut self) -> Result<TraceId, Fault> {
        self.id(TraceId::from_hex, |bytes| {
            <[u8; 16]>::try_from(bytes).ok().map(u128::from_be_bytes).map(TraceId)
        })
    }

    /// Reads a span id: hexadecimal, or base64 as protobuf's own JSON writes bytes. Empty and `null` are
    /// [`SpanId::ZERO`].
    pub(crate) fn span_id(&mut self) -> Result<SpanId, Fault> {
        self.id(SpanId::from_hex, |bytes| <[u8; 8]>::try_from(bytes).ok().map(u64::from_be_bytes).map(SpanId))
    }

    fn id<T: Default>(
        &mut self,
        hex: impl FnOnce(&str) -> Option<T>,
        bytes: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<T, Fault> {
        self.peek();
        let start = self.at;
        let text = self.text_or_null()?;
        let id = if text.is_empty() {
            Some(T::default())
        } else if text.ends_with('=') {
            decode_base64(&text).and_then(|decoded| bytes(&decoded))
        } else {
            hex(&text)
        };
        id.map_or_else(|| self.fault_at(start, "not an id"), Ok)
    }

    /// Reads base64 bytes; `null` is empty.
    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, Fault> {
        self.peek();
        let start = self.at;
        let text = self.text_or_null()?;
        decode_base64(&text).map_or_else(|| self.fault_at(start, "not base64"), Ok)
    }
}

/// Decodes base64 in either alphabet, padded or not, as protobuf's JSON mapping requires of parsers.
pub(crate) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    const CONFIG: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);
    const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, CONFIG);
    let engine = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    engine.decode(text).ok()
}
