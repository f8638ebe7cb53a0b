//! The text form of caps.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use super::{Allowance, Cap};
use crate::config_error::ConfigError;

/// The names of each rate and its burst.
pub(super) const NAMES: [(&str, &str); 5] = [
    ("traces", "burst"),
    ("key_traces", "key_burst"),
    ("new_traces", "new_burst"),
    ("bytes", "bytes_burst"),
    ("key_bytes", "key_bytes_burst"),
];
const EXAMPLE: &str = "use a form such as traces=100,burst=25,key_traces=10,bytes=1e6,replicas=4";

impl Cap {
    /// The allowances, in the order of [`NAMES`].
    pub(super) fn allowances(&self) -> [Option<Allowance>; 5] {
        [self.traces, self.key_traces, self.new_traces, self.bytes, self.key_bytes]
    }

    /// The names and values of the allowances that are set.
    #[cfg(feature = "parameters")]
    pub(crate) fn values(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.allowances().into_iter().zip(NAMES).flat_map(|(allowance, (rate, burst))| {
            allowance.into_iter().flat_map(move |known| [(rate, known.rate()), (burst, known.burst())])
        })
    }

    /// A cap from rates and bursts, in the order of [`NAMES`].
    pub(crate) fn from_values(
        values: [(Option<f64>, Option<f64>); 5],
        replicas: NonZeroU32,
    ) -> Result<Self, ConfigError> {
        let mut allowances = [None; 5];
        for (place, ((rate, burst), (name, burst_name))) in
            allowances.iter_mut().zip(values.into_iter().zip(NAMES))
        {
            *place = match (rate, burst) {
                (None, None) => None,
                (None, Some(_)) => {
                    return Err(ConfigError::missing(
                        burst_name,
                        format!("a burst needs its rate `{name}`; {EXAMPLE}"),
                    ));
                }
                (Some(rate), burst) => {
                    let burst = burst.unwrap_or_else(|| Allowance::burst_of(rate));
                    Some(Allowance::named((name, burst_name), rate, burst)?)
                }
            };
        }
        let [traces, key_traces, new_traces, bytes, key_bytes] = allowances;
        Ok(Cap { traces, key_traces, new_traces, bytes, key_bytes, replicas })
    }
}

pub(super) fn write(cap: &Cap, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut separator = "";
    for (allowance, (rate, burst)) in cap.allowances().into_iter().zip(NAMES) {
        if let Some(allowance) = allowance {
            write!(f, "{separator}{rate}={},{burst}={}", allowance.rate(), allowance.burst())?;
            separator = ",";
        }
    }
    if cap.replicas > NonZeroU32::MIN {
        write!(f, "{separator}replicas={}", cap.replicas)?;
    }
    Ok(())
}

impl FromStr for Cap {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut values = [(None, None); 5];
        let mut replicas = None;
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| ConfigError::syntax(part, EXAMPLE))?;
            let number = || value.parse::<f64>().map_err(|_| ConfigError::syntax(part, EXAMPLE));
            let at = |find: fn(&(&str, &str), &str) -> bool| NAMES.iter().position(|names| find(names, name));
            let repeated = if let Some(at) = at(|names, name| names.0 == name) {
                values[at].0.replace(number()?).is_some()
            } else if let Some(at) = at(|names, name| names.1 == name) {
                values[at].1.replace(number()?).is_some()
            } else if name == "replicas" {
                let count = value.parse::<NonZeroU32>();
                replicas.replace(count.map_err(|_| ConfigError::syntax(part, EXAMPLE))?).is_some()
            } else {
                return Err(ConfigError::unknown_parameter(name, EXAMPLE));
            };
            if repeated {
                return Err(ConfigError::repeated(name, "give it once"));
            }
        }
        Cap::from_values(values, replicas.unwrap_or(NonZeroU32::MIN))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        for text in [
            "traces=100,burst=25",
            "traces=100,burst=25,key_traces=10,key_burst=2.5,replicas=4",
            "bytes=1000000,bytes_burst=250000,key_bytes=5,key_bytes_burst=7",
            "new_traces=2.5,new_burst=64,bytes=1000000,bytes_burst=250000",
            "",
        ] {
            let cap: Cap = text.parse().unwrap();
            assert_eq!(cap.to_string(), text);
            assert_eq!(cap.is_none(), text.is_empty());
        }
        assert_eq!("traces=100".parse::<Cap>().unwrap().to_string(), "traces=100,burst=25");
        assert_eq!("traces=2".parse::<Cap>().unwrap().to_string(), "traces=2,burst=1");
        let cap: Cap = "traces=100,burst=20,replicas=4".parse().unwrap();
        assert_eq!(cap.own_share().to_string(), "traces=25,burst=5");
    }

    #[test]
    fn values_that_no_cap_can_have_are_refused() {
        for text in [
            "traces",
            "traces=",
            "traces=x",
            "traces=0",
            "traces=-1",
            "traces=inf",
            "traces=nan",
            "traces=1e13",
            "traces=1,burst=0.5",
            "traces=1,burst=inf",
            "traces=0.000001,burst=1e9",
            "burst=1",
            "traces=1,traces=1",
            "spans=1",
            "traces=1,replicas=0",
        ] {
            assert!(text.parse::<Cap>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_error_has_the_name_that_was_written() {
        for (text, part) in [
            ("bytes=0", "bytes=0"),
            ("traces=1,key_bytes=1e13", "key_bytes=10000000000000"),
            ("traces=100,key_traces=1,key_burst=0.5", "key_burst=0.5"),
        ] {
            assert_eq!(text.parse::<Cap>().unwrap_err().part(), part, "{text}");
        }
    }
}
