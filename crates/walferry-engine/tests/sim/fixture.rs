//! The connector's parts that a simulation does not vary.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use walferry_config::Options;
use walferry_converter::{Role, converter};
use walferry_engine::{Converters, Pipeline, Tolerance, status::Status, store::StoredOffset};
use walferry_event::{
    Settings,
    filter::{NameFilter, Patterns},
};
use walferry_transform::Chain;

/// A pipeline that captures `public.t` and sends plain JSON.
pub(crate) fn pipeline(after: &StoredOffset) -> Pipeline {
    let mut settings = Settings::new("sim", "db");
    settings.tables.tables = NameFilter::Include(Patterns::parse("public.t").expect("a plain pattern"));
    let json = |role| {
        let mut options = Options::default();
        options.set("schemas.enable", "false");
        converter("JsonConverter", role, &options)
            .0
            .expect("JsonConverter is known")
    };
    let converters = Converters {
        key: json(Role::Key),
        value: json(Role::Value),
        header: json(Role::Header),
    };
    Pipeline::new(Arc::new(settings), Chain::default(), converters, Tolerance::None, after)
}

/// Where the counts go.
pub(crate) fn status() -> Status {
    Status::new("sim", "sim")
}

/// `id` and `n` of an envelope's `after`; messages have none.
pub(crate) fn row(value: &[u8]) -> Option<(i32, i64)> {
    let envelope: serde_json::Value = serde_json::from_slice(value).expect("the converter writes JSON");
    let field = |name: &str| envelope["after"][name].as_i64();
    Some((field("id")? as i32, field("n")?))
}

/// The value of a future that never waits.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("memory does not wait"),
    }
}
