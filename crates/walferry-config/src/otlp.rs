//! `walferry.otlp.*`: where metrics and traces are exported to.

use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::{
    properties,
    property::{Group, Property},
    reader::Reader,
    secret::Secret,
};

/// The export to an OpenTelemetry collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpSection {
    /// `walferry.otlp.endpoint`, without a slash at its end.
    pub endpoint: String,
    /// `walferry.otlp.headers`: names and values. `None` if they are not set.
    pub headers: Option<Vec<(String, Secret)>>,
    /// `walferry.otlp.interval.ms`
    pub interval: Duration,
}

properties! {
    const ENDPOINT: Property<Option<String>> = Property::new("walferry.otlp.endpoint").example("http://collector:4318")
        .text("Sends metrics and traces to the OpenTelemetry collector at this URL, such as `http://localhost:4318` (OTLP over HTTP, in \
               JSON). The delivery of a record with a header `traceparent` becomes a span of its trace, if the trace is sampled.");
    const HEADERS: Property<Option<Secret>> = Property::new("walferry.otlp.headers").example("${env:OTLP_HEADERS}")
        .text("Headers of these requests, such as `api-key=…,x-tenant=…`. If it is not set, those of the environment variable \
               `OTEL_EXPORTER_OTLP_HEADERS`.");
    const INTERVAL: Property<Duration> = Property::new("walferry.otlp.interval.ms").default("60000")
        .text("How often metrics are sent, at least 1000. Spans are sent every 5 seconds.");
}

/// The section of the reference page for worker files.
pub(crate) const GROUP: Group = Group {
    title: "OpenTelemetry",
    text: "",
    prefix: "",
    declarations: DECLARATIONS,
};

impl OtlpSection {
    /// Reads the section. `None` if nothing is exported.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (endpoint, headers, interval) = (reader.get(&ENDPOINT), reader.get(&HEADERS), reader.get(&INTERVAL));
        let endpoint = endpoint.filter(|endpoint| !endpoint.is_empty())?;
        if !["http://", "https://"]
            .iter()
            .any(|scheme| endpoint.starts_with(scheme))
        {
            reader
                .problem(ENDPOINT.name(), "is not a URL")
                .hint("write the address of the collector's HTTP receiver, such as http://localhost:4318");
        }
        if interval < Duration::from_secs(1) {
            reader
                .problem(INTERVAL.name(), "is less than 1000")
                .hint("write 1000 or more");
        }
        let headers = headers.map(|text| {
            parse_headers(text.expose()).unwrap_or_else(|| {
                reader
                    .problem(
                        HEADERS.name(),
                        "is not a list of name=value entries separated by commas",
                    )
                    .hint("write api-key=…,x-tenant=…");
                Vec::new()
            })
        });
        Some(Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            headers,
            interval,
        })
    }
}

/// Reads `name=value` entries with commas between them, as OpenTelemetry's environment variables have them: values may be
/// percent-encoded. `None` if an entry has no name.
pub fn parse_headers(text: &str) -> Option<Vec<(String, Secret)>> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let parse = |entry: &str| {
        let (name, value) = entry.split_once('=')?;
        let name = name.trim();
        let value = percent_decode_str(value.trim()).decode_utf8_lossy();
        (!name.is_empty()).then(|| (name.to_owned(), Secret::new(value)))
    };
    entries.map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_pairs_and_may_be_percent_encoded() {
        let headers_text = |text: &str| {
            parse_headers(text).map(|headers| {
                let pairs = headers.iter().map(|(name, value)| format!("{name}:{}", value.expose()));
                pairs.collect::<Vec<_>>().join(" ")
            })
        };
        assert_eq!(
            headers_text("api-key=s3,x = Basic%20abc=, ").as_deref(),
            Some("api-key:s3 x:Basic abc=")
        );
        for not_encoded in ["100%", "%+f", "1+1", "%4"] {
            let expected = format!("a:{not_encoded}");
            assert_eq!(
                headers_text(&format!("a={not_encoded}")).as_deref(),
                Some(expected.as_str())
            );
        }
        for wrong in ["api-key", "=x"] {
            assert_eq!(headers_text(wrong), None, "{wrong}");
        }
    }
}
