//! The settings of traces.

use crate::failure::Failure;
use crate::plaintext::Protocol;
use crate::transport::TransportArgs;
use anyhow::anyhow;
use clap::Args;
use firstcome_server::{OtlpEndpoint, TraceConfig};

#[derive(Args)]
pub(super) struct TraceArgs {
    /// Collector of traces, which gets them as OTLP over HTTP in JSON at /v1/traces below this address [default: no traces]
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<OtlpEndpoint>,
    /// Name of this service in traces
    #[arg(long, env = "OTEL_SERVICE_NAME", value_name = "NAME", default_value = "firstcome")]
    otlp_service_name: String,
    /// Share of the requests that are traced, from 0 to 1; one that brings a traceparent follows that
    #[arg(long, env = "FIRSTCOME_TRACE_SAMPLE", value_name = "SHARE", value_parser = share, default_value = "0.01")]
    trace_sample: f64,
}

fn share(text: &str) -> anyhow::Result<f64> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| anyhow!("must be 0 to 1, such as 0.01, not {text}"))
}

impl TraceArgs {
    /// Returns the configuration, if a collector is named. Refuses one that spans would reach in plain text over a network, unless
    /// that is allowed.
    pub(super) fn config(&self, transport: &TransportArgs) -> Result<Option<TraceConfig>, Failure> {
        let Some(endpoint) = self.otlp_endpoint.clone() else { return Ok(None) };
        let transport = transport.settled()?;
        transport.plaintext.check(Protocol::Collector, &endpoint.destination())?;
        let (service_name, sample) = (self.otlp_service_name.clone(), self.trace_sample);
        Ok(Some(TraceConfig { endpoint, service_name, sample, trust: transport.trust().clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_from_0_to_1() {
        assert_eq!(["0", "0.01", "1"].map(|text| share(text).unwrap()), [0.0, 0.01, 1.0]);
        for text in ["", "-0.1", "1.1", "NaN", "1%"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
