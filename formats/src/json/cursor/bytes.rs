//! Ids and bytes, which JSON represents as text.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::{Cursor, Fault};
use astracer_model::ids::{SpanId, TraceId};

impl Cursor<'_> {
    /// Reads an OTLP trace id: 32 hexadecimal digits, or base64 as protobuf's own JSON writes
    /// bytes. Empty and `null` are [`TraceId::ZERO`].
    pub(crate) fn trace_id(&mut self) -> Result<TraceId, Fault> {
        let wrong = "invalid trace id: OTLP requires 32 hexadecimal digits";
        let bytes = |bytes: &[u8]| <[u8; 16]>::try_from(bytes).ok().map(u128::from_be_bytes).map(TraceId);
        self.id(32, TraceId::from_hex, bytes, wrong)
    }

    /// Reads an OTLP span id: 16 hexadecimal digits, or base64 as protobuf's own JSON writes bytes.
    /// Empty and `null` are [`SpanId::ZERO`].
    pub(crate) fn span_id(&mut self) -> Result<SpanId, Fault> {
        let wrong = "invalid span id: OTLP requires 16 hexadecimal digits";
        let bytes = |bytes: &[u8]| <[u8; 8]>::try_from(bytes).ok().map(u64::from_be_bytes).map(SpanId);
        self.id(16, SpanId::from_hex, bytes, wrong)
    }

    /// Rejects ids of another length. Such an id was truncated or made by other rules, and using it
    /// would join unrelated spans.
    fn id<T: Default>(
        &mut self,
        digits: usize,
        hex: impl FnOnce(&str) -> Option<T>,
        bytes: impl FnOnce(&[u8]) -> Option<T>,
        wrong: &'static str,
    ) -> Result<T, Fault> {
        self.peek();
        let start = self.at;
        let text = self.text_or_null()?;
        let id = if text.is_empty() {
            Some(T::default())
        } else if text.len() == digits {
            hex(&text)
        } else if text.ends_with('=') {
            decode_base64(&text).and_then(|decoded| bytes(&decoded))
        } else {
            None
        };
        id.map_or_else(|| self.fault_at(start, wrong), Ok)
    }

    /// Reads base64 bytes; `null` is empty.
    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, Fault> {
        self.peek();
        let start = self.at;
        let text = self.text_or_null()?;
        decode_base64(&text).map_or_else(|| self.fault_at(start, "invalid base64"), Ok)
    }
}

/// Decodes base64 in either alphabet, padded or not, as protobuf's JSON mapping requires of
/// parsers.
pub(crate) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    const CONFIG: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);
    const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, CONFIG);
    let engine = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    engine.decode(text).ok()
}
