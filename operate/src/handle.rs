//! The methods that this crate adds to the SDK's handle.

use astracer_sdk::Handle;

/// Lets people and monitoring systems watch a service, through its [`Handle`].
///
/// ```
/// use astracer_operate::Operate as _;
/// # fn start(handle: &astracer_sdk::Handle) -> std::io::Result<()> {
/// # #[cfg(feature = "endpoint")]
/// let page = handle.serve("127.0.0.1:9464".parse().unwrap(), None)?;
/// # Ok(())
/// # }
/// ```
pub trait Operate: sealed::Sealed {
    /// Serves the local endpoint on a loopback address. `/` is a page with live tables, `/stats`
    /// its data as JSON, and `/why/TRACE_ID` the decision about a trace (see
    /// [`Builder::with_explanations`](astracer_sdk::Builder::with_explanations)).
    ///
    /// With a token, requests with `authorization: Bearer TOKEN` may set overrides:
    /// `POST /override?key=KEY&seconds=600&keep=1`, where `keep` is the share to keep. `seconds=0`
    /// ends an override. An override set here lasts at most a day, even if more seconds are given;
    /// [`Handle::override_key`] sets longer ones. Requests whose host is not this machine are
    /// refused, so that a foreign page in a browser gets no answer.
    ///
    /// # Errors
    ///
    /// If the address is not a loopback address, if the token is empty, or if binding the address
    /// fails.
    #[cfg(feature = "endpoint")]
    fn serve(
        &self,
        address: std::net::SocketAddr,
        token: Option<String>,
    ) -> std::io::Result<crate::Endpoint> {
        self.serve_with(address, token, Vec::new())
    }

    /// As [`serve`](Self::serve), with the paths and tables of other parts of the service. With the
    /// feature `baggage`, what tenants use is one of them, `/tenants`, and so are critical paths,
    /// `/critical-paths`.
    ///
    /// # Errors
    ///
    /// As [`serve`](Self::serve).
    #[cfg(feature = "endpoint")]
    fn serve_with(
        &self,
        address: std::net::SocketAddr,
        token: Option<String>,
        parts: Vec<crate::Part>,
    ) -> std::io::Result<crate::Endpoint>;

    /// The use of the service by each tenant, if the observer of this handle is `Flows` with
    /// `Applications::with_tenants`; else empty.
    #[cfg(feature = "baggage")]
    fn tenants(&self) -> astracer_baggage::TenantSums;

    /// The critical paths of the service's requests, to add experiments: if the observer of this
    /// handle is `Flows` with `Applications::with_critical_path`. Else they have no rows, and an
    /// experiment is an error.
    #[cfg(feature = "baggage")]
    fn critical_path(&self) -> astracer_baggage::critical_path::CriticalPath;

    /// Totals of the critical paths of all requests, kept or dropped, by the key of their local
    /// roots; those with the most time come first.
    #[cfg(feature = "baggage")]
    fn critical_paths(&self) -> Vec<astracer_baggage::critical_path::CriticalPathRow> {
        self.critical_path().rows()
    }

    /// Registers counts and states with a meter:
    ///
    /// - `astracer.roots` (counter): local roots of a key (`key`) by `decision` (`kept`, `dropped`)
    ///   and `reason` (`sampler`, `cap`, `cap_empty`, `override`). These are the exact numbers, of
    ///   which kept traces are a sample.
    /// - `astracer.probability` and `astracer.tokens` (gauges): the state of a key.
    /// - `astracer.keys.overflowed` (counter): roots of keys without a record of their own.
    /// - `astracer.cap.level` (gauge): the remaining part of the cap's credit, from 0 to 1.
    /// - `astracer.file.keys` (gauge): keys that the parameters file names, by `state`: `seen` in
    ///   the last hour, or `unseen`.
    /// - `astracer.file.size` (gauge): the share of roots kept in the last half hour, divided by
    ///   that of the recording that the file comes from.
    /// - `astracer.spans` (counter by `state`): `exported`, and `lost` by `reason`;
    ///   `astracer.spans.waiting` (gauge).
    /// - `astracer.tenant.calls`, `astracer.tenant.errors` and `astracer.tenant.consumed`
    ///   (counters), `astracer.tenant.wall`, `astracer.tenant.on_thread` and
    ///   `astracer.tenant.waiting` (counters of seconds), by `tenant` and `resource`: with the
    ///   feature `baggage`, if the handle has [`tenants`](Self::tenants).
    /// - `astracer.critical_path.requests` by `key`, and `astracer.critical_path.time` by `key`,
    ///   `function` and `kind` (counters, of local roots and of seconds): with the feature
    ///   `baggage`, if the handle has [`critical_paths`](Self::critical_paths).
    ///
    /// The first 300 keys are reported separately, those with the most roots first; the others are
    /// added up as `_OTHER`. Counters never fall: a key continues from its last value when its
    /// record is evicted or the sampler is replaced. The instruments keep working for as long as
    /// the layer exists.
    #[cfg(feature = "metrics")]
    fn register_metrics(&self, meter: &opentelemetry::metrics::Meter);
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for astracer_sdk::Handle {}
}

impl Operate for Handle {
    #[cfg(feature = "endpoint")]
    fn serve_with(
        &self,
        address: std::net::SocketAddr,
        token: Option<String>,
        parts: Vec<crate::Part>,
    ) -> std::io::Result<crate::Endpoint> {
        #[cfg(feature = "baggage")]
        let parts = parts
            .into_iter()
            .chain(crate::tenants::part(self))
            .chain(crate::critical_paths::part(self))
            .collect();
        crate::endpoint::serve(self, address, token, parts)
    }

    #[cfg(feature = "baggage")]
    fn tenants(&self) -> astracer_baggage::TenantSums {
        crate::tenants::sums(self)
    }

    #[cfg(feature = "baggage")]
    fn critical_path(&self) -> astracer_baggage::critical_path::CriticalPath {
        crate::critical_paths::measured(self)
    }

    #[cfg(feature = "metrics")]
    fn register_metrics(&self, meter: &opentelemetry::metrics::Meter) {
        crate::metrics::register(self, meter);
        #[cfg(feature = "baggage")]
        crate::tenants::register(self, meter);
        #[cfg(feature = "baggage")]
        crate::critical_paths::register(self, meter);
    }
}
