//! The call that tells the id of a member of a group.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};

use rdkafka::{
    bindings::{rd_kafka_mem_free, rd_kafka_memberid},
    consumer::{BaseConsumer, Consumer as _, ConsumerContext},
};

/// The id that the brokers have given to a consumer in its group. It is empty if there is none, or if they do not know it any more.
pub(crate) fn member_id<C: ConsumerContext>(consumer: &BaseConsumer<C>) -> String {
    let client = consumer.client().native_ptr();
    // SAFETY: the consumer is alive.
    let id = unsafe { rd_kafka_memberid(client) };
    if id.is_null() {
        return String::new();
    }
    // SAFETY: librdkafka has returned a text that ends in a zero byte. It is ours until it is freed, here and once.
    unsafe {
        let text = CStr::from_ptr(id).to_string_lossy().into_owned();
        rd_kafka_mem_free(client, id.cast::<c_void>());
        text
    }
}
