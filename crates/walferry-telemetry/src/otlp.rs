//! What is exported to an OpenTelemetry collector: spans of deliveries that wait to be sent, and how the export goes.
//!
//! A record with a header `traceparent` (W3C Trace Context) belongs to a trace that an application has begun. If that trace is sampled,
//! the delivery of the record becomes a span of it.

use std::{
    collections::VecDeque,
    ffi::CStr,
    mem,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// The header of W3C Trace Context, in the form in which librdkafka finds a header.
pub const TRACEPARENT: &CStr = c"traceparent";

/// Maximum number of spans that wait for the collector. Further ones are dropped and counted.
const MOST_SPANS: usize = 8192;

/// A span of an application, to which a delivery belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// Id of the trace.
    pub trace: [u8; 16],
    /// Id of the application's span.
    pub span: [u8; 8],
    /// Whether the trace is recorded.
    pub is_sampled: bool,
}

impl TraceParent {
    /// Reads the header: `00-<32 hexadecimal digits>-<16 digits>-<2 digits>`, also in quotes, as a JSON converter writes it. Later versions
    /// may have more behind it. `None` if it is not valid.
    pub fn parse(header: &[u8]) -> Option<Self> {
        let header = header
            .strip_prefix(b"\"")
            .and_then(|text| text.strip_suffix(b"\""))
            .unwrap_or(header);
        let mut parts = header.split(|byte| *byte == b'-');
        let version = hex::<1>(parts.next()?)?[0];
        let (trace, span, [flags]) = (hex(parts.next()?)?, hex(parts.next()?)?, hex(parts.next()?)?);
        let has_more = parts.next().is_some();
        let is_valid = version != 0xff && trace != [0; 16] && span != [0; 8] && (version > 0 || !has_more);
        is_valid.then_some(Self {
            trace,
            span,
            is_sampled: flags & 1 == 1,
        })
    }
}

/// Lower-case hexadecimal digits, as W3C has them.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// The delivery of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliverySpan {
    /// The span of the application.
    pub parent: TraceParent,
    /// Id of this span.
    pub id: [u8; 8],
    /// Topic of the record.
    pub topic: String,
    /// Partition of the record.
    pub partition: i32,
    /// Offset of the record in its partition.
    pub offset: Option<i64>,
    /// The header `id`, which an EventRouter adds.
    pub message: Option<String>,
    /// The record's timestamp, nanoseconds since 1970.
    pub begun_ns: u64,
    /// When the acknowledgement arrived, nanoseconds since 1970.
    pub ended_ns: u64,
}

/// The export of this process.
#[derive(Debug, Default)]
pub struct Export {
    spans: Mutex<VecDeque<DeliverySpan>>,
    dropped: AtomicU64,
    failed: AtomicU64,
}

static EXPORT: OnceLock<Export> = OnceLock::new();

/// Turns the export on, for the rest of the process.
pub fn enable() -> &'static Export {
    EXPORT.get_or_init(Export::default)
}

/// The export, if it is on.
pub fn export() -> Option<&'static Export> {
    EXPORT.get()
}

impl Export {
    /// Adds spans to those that wait.
    pub fn push_all(&self, new: impl IntoIterator<Item = DeliverySpan>) {
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = new.into_iter();
        let room = MOST_SPANS.saturating_sub(spans.len());
        spans.extend(new.by_ref().take(room));
        self.dropped.fetch_add(new.count() as u64, Relaxed);
    }

    /// Takes the spans that wait.
    pub fn take(&self) -> Vec<DeliverySpan> {
        mem::take(&mut *self.spans.lock().unwrap_or_else(PoisonError::into_inner)).into()
    }

    /// These spans could not be sent.
    pub fn lost(&self, spans: u64) {
        self.dropped.fetch_add(spans, Relaxed);
    }

    /// The collector did not accept a request.
    pub fn failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    /// How many spans were dropped, and how many requests failed.
    pub fn troubles(&self) -> (u64, u64) {
        (self.dropped.load(Relaxed), self.failed.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_headers_make_a_parent() {
        let id = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";
        let parse = |text: String| TraceParent::parse(text.as_bytes());
        let parent = parse(format!("00-{id}-01")).unwrap();
        assert_eq!((parent.trace[0], parent.span[7], parent.is_sampled), (0x0a, 0x31, true));
        assert!(!parse(format!("00-{id}-02")).unwrap().is_sampled);
        assert_eq!(parse(format!("\"00-{id}-01\"")), Some(parent));
        assert_eq!(parse(format!("cc-{id}-01-what-comes-later")), Some(parent));
        for wrong in [
            String::new(),
            format!("00-{id}"),
            format!("ff-{id}-01"),
            format!("00-{id}-01-more"),
            format!("00-{}-01", id.to_uppercase()),
            format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
            format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", "0".repeat(16)),
        ] {
            assert_eq!(parse(wrong.clone()), None, "{wrong}");
        }
    }

    #[test]
    fn spans_beyond_the_limit_are_counted() {
        let export = Export::default();
        let span = DeliverySpan {
            parent: TraceParent {
                trace: [1; 16],
                span: [1; 8],
                is_sampled: true,
            },
            id: [1; 8],
            topic: "t".into(),
            partition: 0,
            offset: None,
            message: None,
            begun_ns: 0,
            ended_ns: 1,
        };
        let spans = |count| (0..count).map(|_| span.clone());
        export.push_all(spans(MOST_SPANS - 1));
        export.push_all(spans(4));
        assert_eq!((export.take().len(), export.troubles()), (MOST_SPANS, (3, 0)));
        assert!(export.take().is_empty());
    }
}
