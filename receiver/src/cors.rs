//! Cross-origin requests of browsers (Fetch standard, "HTTP-CORS protocol"), for origins that the
//! operator allows.

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, HeaderMap, HeaderValue, ORIGIN, VARY,
};
use hyper::{Response, StatusCode};

use crate::answer::{Body, whole};

/// The seconds for which a browser may cache a preflight response. Browsers allow no more than
/// this.
const MAX_AGE_SECONDS: u64 = 7_200;

/// Returns the origin to allow: the request's origin if it is in `origins`, or if `*` is.
pub(crate) fn allowed(origins: &[String], headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(ORIGIN)?;
    origins
        .iter()
        .any(|allowed| allowed == "*" || allowed.as_bytes() == origin.as_bytes())
        .then(|| origin.clone())
}

/// The response to a preflight: allows the request, with the headers that it asks for.
pub(crate) fn preflight(origin: &HeaderValue, asked: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(whole(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST"));
    headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE_SECONDS.into());
    if let Some(wanted) = asked.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    allow(headers, origin.clone());
    response
}

/// Allows the page at `origin` to read the response.
pub(crate) fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(VARY, HeaderValue::from_static("origin"));
}
