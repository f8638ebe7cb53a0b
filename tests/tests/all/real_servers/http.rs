//! HTTP requests to the servers.

use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// Sends a GET request and returns the status and the body.
pub(super) fn get(address: &str, path: &str) -> Result<(u16, Vec<u8>), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let uri = format!("http://{address}{path}").parse().map_err(|error| format!("{path}: {error}"))?;
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<bytes::Bytes>>();
        let response = client.get(uri).await.map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map_err(|error| error.to_string())?;
        Ok((status, body.to_bytes().to_vec()))
    })
}

/// Sends a GET request and returns the body; any status but 200 is an error.
pub(super) fn get_found(address: &str, path: &str) -> Result<Vec<u8>, String> {
    match get(address, path)? {
        (200, body) => Ok(body),
        (status, body) => Err(format!("{path}: {status} {}", String::from_utf8_lossy(&body))),
    }
}
