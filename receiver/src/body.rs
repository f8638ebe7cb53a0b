//! Bodies: read within limits, and decompressed within limits.

use std::borrow::Cow;
use std::io::Read;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use tokio::sync::SemaphorePermit;

use crate::answer::Refused;
use crate::counts::Refusal;
use crate::server::{BODY_UNIT, Shared};

/// A body that was read, with its share of the receiver's memory.
pub(crate) struct Bytes<'s> {
    pub(crate) bytes: Vec<u8>,
    _units: Option<SemaphorePermit<'s>>,
}

impl<'s> Bytes<'s> {
    pub(crate) fn into_parts(self) -> (Vec<u8>, Option<SemaphorePermit<'s>>) {
        (self.bytes, self._units)
    }
}

/// Time to wait for memory that other bodies hold.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(5);

/// Takes more of the memory for bodies, so that all of `bytes` are covered. A body takes what has arrived, not what it
/// announced: a slow sender holds little.
async fn grow<'s>(
    shared: &'s Shared,
    units: &mut Option<SemaphorePermit<'s>>,
    bytes: usize,
) -> Result<(), Refused> {
    let held = units.as_ref().map_or(0, SemaphorePermit::num_permits);
    let more = bytes.div_ceil(BODY_UNIT).saturating_sub(held);
    if more == 0 {
        return Ok(());
    }
    let more = shared.body_units.acquire_many(u32::try_from(more).unwrap_or(u32::MAX));
    match tokio::time::timeout(MEMORY_TIMEOUT, more).await {
        Ok(Ok(permit)) => {
            match units {
                Some(units) => units.merge(permit),
                None => *units = Some(permit),
            }
            Ok(())
        }
        _ => Err(Refused::new(Refusal::NoRoom, "too many requests are being read")),
    }
}

/// Reads a body to its end.
pub(crate) async fn read<'s>(
    shared: &'s Shared,
    mut body: Incoming,
    bytes_max: usize,
) -> Result<Bytes<'s>, Refused> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > bytes_max {
        return Err(too_large(bytes_max));
    }
    let whole = async {
        let (mut bytes, mut units) = (Vec::new(), None);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Refused::new(Refusal::Incomplete, error.to_string()))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > bytes_max {
                return Err(too_large(bytes_max));
            }
            grow(shared, &mut units, bytes.len() + data.len()).await?;
            bytes.extend_from_slice(&data);
        }
        Ok(Bytes { bytes, _units: units })
    };
    let late = || Refused::new(Refusal::Incomplete, "the request did not arrive in time");
    tokio::time::timeout(shared.limits.arrival_timeout, whole).await.unwrap_or_else(|_| Err(late()))
}

/// Undoes a compression by its name in HTTP and gRPC.
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
            let message =
                format!("compression {encoding:?} is not known; known are gzip, deflate, zstd and none");
            return Err(Refused::new(Refusal::Unsupported, message));
        }
    };
    let mut whole = Vec::new();
    // One byte more than the limit tells what is too large from what just fits.
    let read = (&mut decoder).take(bytes_max as u64 + 1).read_to_end(&mut whole);
    read.map_err(|error| bad(&error))?;
    if whole.len() > bytes_max { Err(too_large(bytes_max)) } else { Ok(Cow::Owned(whole)) }
}

pub(crate) fn too_large(bytes_max: usize) -> Refused {
    Refused::new(Refusal::TooLarge, format!("the request is larger than {bytes_max} bytes"))
}

fn bad(error: &std::io::Error) -> Refused {
    Refused::new(Refusal::Bad, format!("can't be decompressed: {error}"))
}
