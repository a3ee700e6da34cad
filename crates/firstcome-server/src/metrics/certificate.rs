//! When the certificate of the service ends.

use super::Metrics;
use firstcome_tls::ServerTls;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use std::fmt;

/// Reads the certificate at each scrape: a renewal replaces it.
#[derive(Debug)]
struct CertificateCollector(ServerTls);

impl Collector for CertificateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(validity) = self.0.validity() else { return Ok(()) };
        let help = "When the certificate of this service ends";
        let name = "tls_certificate_not_after_timestamp";
        let metric = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
        ConstGauge::new(validity.ends_s).encode(metric)
    }
}

impl Metrics {
    /// Shows from now on when this certificate ends.
    pub(crate) fn show_certificate(&mut self, tls: ServerTls) {
        self.registry.register_collector(Box::new(CertificateCollector(tls)));
    }
}
