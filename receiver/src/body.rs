//! Reads and decompresses bodies within limits.

use std::borrow::Cow;
use std::io::Read;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};

use crate::answer::Refused;
use crate::clients::{BodyPermit, Client};
use crate::counts::Refusal;
use crate::shared::Shared;

/// A body in memory, with the memory permits it holds.
pub(crate) struct Bytes {
    bytes: Vec<u8>,
    permit: BodyPermit,
}

impl Bytes {
    pub(crate) fn into_parts(self) -> (Vec<u8>, BodyPermit) {
        (self.bytes, self.permit)
    }
}

/// Reads a body to its end.
pub(crate) async fn read(
    shared: &Shared,
    client: &Client,
    body: &mut Incoming,
    bytes_max: usize,
) -> Result<Bytes, Refused> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > bytes_max {
        return Err(too_large(bytes_max));
    }
    let whole = async {
        let (mut bytes, mut permit) = (Vec::new(), BodyPermit::default());
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                () = shared.standstill() => return Err(Refused::cut_off()),
            };
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| Refused::new(Refusal::Incomplete, error.to_string()))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > bytes_max {
                return Err(too_large(bytes_max));
            }
            permit.grow(client, bytes.len() + data.len()).await?;
            bytes.extend_from_slice(&data);
        }
        Ok(Bytes { bytes, permit })
    };
    let late = || Refused::new(Refusal::Incomplete, "the request did not arrive in time");
    tokio::time::timeout(shared.limits.arrival_timeout, whole).await.unwrap_or_else(|_| Err(late()))
}

/// The maximum number of bytes of a rejected body that are read and discarded.
const DISCARDED_BYTES_MAX: u64 = 64 << 20;

/// The maximum wait for the next of these bytes. A sender that stalls gets its response then.
const DISCARD_PAUSE: Duration = Duration::from_secs(1);

/// Reads the rest of the body of a rejected HTTP/1 request. If a connection is closed with unread
/// bytes, TCP discards the response, so a sender that writes everything before it reads would never
/// see it.
pub(crate) async fn discard(shared: &Shared, body: &mut Incoming) {
    if body.size_hint().lower() > DISCARDED_BYTES_MAX {
        return;
    }
    let rest = async {
        let mut bytes = 0;
        while bytes <= DISCARDED_BYTES_MAX {
            let next = tokio::time::timeout(DISCARD_PAUSE, body.frame());
            let frame = tokio::select! {
                frame = next => frame,
                () = shared.standstill() => return,
            };
            let Ok(Some(Ok(frame))) = frame else { return };
            bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
    };
    let _ = tokio::time::timeout(shared.limits.arrival_timeout, rest).await;
}

/// Decompresses bytes; `encoding` is the name of the compression in HTTP and gRPC.
pub(crate) fn decompress<'b>(
    bytes: &'b [u8],
    encoding: &str,
    bytes_max: usize,
) -> Result<Cow<'b, [u8]>, Refused> {
    let mut decoder: Box<dyn Read + 'b> = match encoding.trim().to_ascii_lowercase().as_str() {
        "" | "identity" => return Ok(Cow::Borrowed(bytes)),
        "deflate" => Box::new(flate2::read::ZlibDecoder::new(bytes)),
        "gzip" => Box::new(flate2::read::MultiGzDecoder::new(bytes)),
        "zstd" => Box::new(zstd::stream::read::Decoder::with_buffer(bytes).map_err(|error| bad(&error))?),
        _ => {
            let message = format!("unsupported compression {encoding:?}: use gzip, deflate, zstd or none");
            return Err(Refused::new(Refusal::Unsupported, message));
        }
    };
    let mut whole = Vec::new();
    // One byte more than the limit distinguishes a body that is too large from one that just fits.
    let read = (&mut decoder).take(bytes_max as u64 + 1).read_to_end(&mut whole);
    read.map_err(|error| bad(&error))?;
    if whole.len() > bytes_max { Err(too_large(bytes_max)) } else { Ok(Cow::Owned(whole)) }
}

pub(crate) fn too_large(bytes_max: usize) -> Refused {
    Refused::new(Refusal::TooLarge, format!("the request is larger than {bytes_max} bytes"))
}

fn bad(error: &std::io::Error) -> Refused {
    Refused::new(Refusal::Bad, format!("the body cannot be decompressed: {error}"))
}
