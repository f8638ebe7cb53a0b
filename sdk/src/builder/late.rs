//! Builder settings for late keeping.

use std::sync::Arc;

use astracer_samplers::strata::Strata;
use astracer_samplers::tail::{Policy, Tail};

use super::Builder;
use crate::fault::{Fault, Origin};
use astracer_spans::late::{OwnPolicy, TailTrace};

/// # Late keeping
impl Builder {
    /// Keeps traces that the sampler dropped if their outcome matches a policy, such as an error or
    /// a slow root. Each policy keeps traces within its budget. No policies by default.
    ///
    /// ```
    /// # use astracer_sdk::Astracer;
    /// let builder = Astracer::builder().with_tail("error,slow:p99,attr:http.response.status_code>=500".parse()?);
    /// # drop(builder);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A dropped trace is recorded all the same ([`Tail::provisional`] sets which ones are), and
    /// submitted to the policies when its local root ends. Propagation does not change: other
    /// processes see a dropped trace. If a policy keeps it, its spans are exported with an
    /// attribute `sampling.reason`, without a threshold, and with `sampler.adjusted_count` 0, so
    /// that sums of weights stay correct.
    ///
    /// Policies work for the layer and the subscriber. With the sampler in another SDK's provider,
    /// the spans of dropped traces are not recorded at all.
    /// Such roots are counted as [`TailStats::roots_elsewhere`](crate::TailStats::roots_elsewhere).
    pub fn with_tail(mut self, tail: Tail) -> Self {
        self.tail = tail;
        self
    }

    /// Decides about traces by stratum when their root ends: by key, duration and outcome. The
    /// sampler then decides which traces are recorded. See [`Strata`], and `tune --late` of the
    /// command-line tool, which finds their probabilities. None by default.
    ///
    /// Kept traces have true weights. They are dropped as far as other processes can see, like
    /// those that a policy keeps. Strata work for the layer and the subscriber: with the sampler in
    /// another SDK's provider, the sampler decides alone.
    ///
    /// A budget's interval becomes an hour if it is shorter ([`Strata::BUDGET_INTERVAL_MIN`]).
    ///
    /// Without policies, ended traces are held for 30 seconds, so that the parts of other processes
    /// can follow their root's.
    pub fn with_strata(mut self, strata: Strata) -> Self {
        self.strata = Some(strata.clone());
        self.own_strata = Some(strata);
        self
    }

    /// Sets the function behind the policy `own:NAME` of [`Builder::with_tail`].
    ///
    /// It is called without any lock when the root of a recorded trace ends, on the thread that
    /// ends it, and in a shutdown as long as there is time. A panic is caught. After 16 panics or
    /// calls longer than 10 ms the function is switched off, with a warning. Traces that the
    /// function makes itself are never submitted to such functions. Spans that begin and end inside
    /// the function are not released by a `Registry` while it closes another span. A function that
    /// owns a [`Handle`](crate::Handle) keeps the exporter's threads alive until a shutdown.
    ///
    /// ```
    /// # use astracer_sdk::Astracer;
    /// let builder = Astracer::builder()
    ///     .with_tail("error,own:many_queries".parse()?)
    ///     .with_own_policy("many_queries", |trace| {
    ///         trace.spans().filter(|span| span.name() == "query").count() > 100
    ///     });
    /// # drop(builder);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_own_policy(
        mut self,
        name: impl Into<String>,
        wants: impl Fn(&TailTrace<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let name = name.into();
        self.own_policies.retain(|own| own.name != name);
        self.own_policies.push(OwnPolicy::new(name, Arc::new(wants)));
        self
    }

    /// Reports policies that cannot work. One without its function would silently keep nothing;
    /// those beyond the limit would have no names.
    pub(super) fn check_policies(&mut self) {
        let (policies, max) = (self.tail.rules.len(), Tail::RULES_MAX);
        if policies > max {
            let message = format!("{policies} policies given, but at most {max} are supported; remove some");
            self.faults.push(Fault { origin: Origin::Tail, message, default: "the first policies" });
            self.tail.rules.truncate(max);
        }
        let names = self.tail.rules.iter().filter_map(|rule| match &rule.policy {
            Policy::Own(name) => Some(name),
            _ => None,
        });
        let unknown: Vec<_> =
            names.filter(|name| !self.own_policies.iter().any(|own| own.name == **name)).cloned().collect();
        for name in unknown {
            let message = format!("policy own:{name} has no function; call with_own_policy({name:?}, ..)");
            self.faults.push(Fault { origin: Origin::Tail, message, default: "a policy that keeps nothing" });
        }
    }
}
