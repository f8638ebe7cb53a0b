//! A gRPC codec for messages of plain text, so that the examples need no generated code.

use bytes::{Buf as _, BufMut as _};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Encodes a message as its text in UTF-8.
#[derive(Clone, Copy, Debug)]
pub struct Texts;

impl Codec for Texts {
    type Encode = String;
    type Decode = String;
    type Encoder = Texts;
    type Decoder = Texts;

    fn encoder(&mut self) -> Texts {
        Texts
    }

    fn decoder(&mut self) -> Texts {
        Texts
    }
}

impl Encoder for Texts {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, text: String, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put_slice(text.as_bytes());
        Ok(())
    }
}

impl Decoder for Texts {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = bytes.copy_to_bytes(bytes.remaining());
        String::from_utf8(bytes.to_vec())
            .map(Some)
            .map_err(|_| Status::invalid_argument("the message is not valid UTF-8"))
    }
}
