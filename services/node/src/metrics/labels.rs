//! Labels and families: one metric with a value per set of labels.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, LabelSetEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// What a metric is called, what it means, what it is measured in.
pub(super) struct Name {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) unit: Option<Unit>,
}

impl Name {
    pub(super) const fn count(name: &'static str, help: &'static str) -> Self {
        Self { name, help, unit: None }
    }

    pub(super) const fn seconds(name: &'static str, help: &'static str) -> Self {
        Self { name, help, unit: Some(Unit::Seconds) }
    }

    pub(super) const fn bytes(name: &'static str, help: &'static str) -> Self {
        Self { name, help, unit: Some(Unit::Bytes) }
    }
}

/// Names and values of labels, a fixed number of them.
pub(super) struct Labels<'a, const N: usize>(pub(super) [(&'static str, &'a str); N]);

impl<const N: usize> EncodeLabelSet for Labels<'_, N> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        use prometheus_client::encoding::EncodeLabel;
        for (name, value) in self.0 {
            (name, escaped(value)).encode(encoder.encode_label())?;
        }
        Ok(())
    }
}

/// The exposition format's escapes: an NQN may hold quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Writes a counter with a value per set of labels.
pub(super) fn counters<L: EncodeLabelSet, V: EncodeCounterValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &Name,
    values: impl IntoIterator<Item = (L, V)>,
) -> Result<(), fmt::Error> {
    let mut metric =
        encoder.encode_descriptor(name.name, name.help, name.unit.as_ref(), MetricType::Counter)?;
    for (labels, value) in values {
        metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
    }
    Ok(())
}

/// Writes a counter with one value.
pub(super) fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &Name,
    value: impl EncodeCounterValue,
) -> Result<(), fmt::Error> {
    let unit = name.unit.as_ref();
    let mut metric = encoder.encode_descriptor(name.name, name.help, unit, MetricType::Counter)?;
    metric.encode_counter::<NoLabelSet, _, f64>(&value, None)
}

/// Writes a gauge with one value.
pub(super) fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &Name,
    value: impl EncodeGaugeValue,
) -> Result<(), fmt::Error> {
    let unit = name.unit.as_ref();
    encoder.encode_descriptor(name.name, name.help, unit, MetricType::Gauge)?.encode_gauge(&value)
}

/// Writes a gauge with a value per set of labels.
pub(super) fn gauges<L: EncodeLabelSet, V: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &Name,
    values: impl IntoIterator<Item = (L, V)>,
) -> Result<(), fmt::Error> {
    let mut metric =
        encoder.encode_descriptor(name.name, name.help, name.unit.as_ref(), MetricType::Gauge)?;
    for (labels, value) in values {
        metric.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_backslashes_and_line_ends_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
