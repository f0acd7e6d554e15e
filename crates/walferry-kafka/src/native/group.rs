//! The call that describes a group of consumers.
//!
//! Only the broker that coordinates the group is asked. The safe wrapper has `rd_kafka_list_groups` instead, which asks every broker, and fails after
//! its whole time limit while one of them is down.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString, c_char, c_int},
    ptr, slice,
    time::Duration,
};

use rdkafka::{
    bindings::{
        rd_kafka_AdminOptions_destroy, rd_kafka_AdminOptions_new, rd_kafka_AdminOptions_set_request_timeout,
        rd_kafka_AdminOptions_t, rd_kafka_ConsumerGroupDescription_error, rd_kafka_ConsumerGroupDescription_member,
        rd_kafka_ConsumerGroupDescription_member_count, rd_kafka_ConsumerGroupDescription_state,
        rd_kafka_ConsumerGroupDescription_t, rd_kafka_DescribeConsumerGroups,
        rd_kafka_DescribeConsumerGroups_result_groups, rd_kafka_MemberAssignment_partitions,
        rd_kafka_MemberDescription_assignment, rd_kafka_MemberDescription_client_id,
        rd_kafka_MemberDescription_consumer_id, rd_kafka_MemberDescription_host, rd_kafka_MemberDescription_t,
        rd_kafka_admin_op_t, rd_kafka_consumer_group_state_t, rd_kafka_error_code, rd_kafka_error_string,
        rd_kafka_event_DescribeConsumerGroups_result, rd_kafka_event_destroy, rd_kafka_event_error,
        rd_kafka_event_error_string, rd_kafka_event_t, rd_kafka_queue_destroy, rd_kafka_queue_new, rd_kafka_queue_poll,
        rd_kafka_queue_t,
    },
    consumer::{BaseConsumer, Consumer as _, ConsumerContext},
    error::RDKafkaErrorCode,
    types::RDKafkaRespErr,
};

/// A group as its coordinator describes it.
#[derive(Debug)]
pub(crate) enum GroupDescription {
    /// One of consumers, or none at all.
    Consumers {
        /// Whether everything is given out, and nothing is about to move.
        is_stable: bool,
        members: Vec<DescribedMember>,
    },
    /// Its members speak another protocol, as the workers of Kafka Connect do. They are not described.
    OfAnotherProtocol,
}

/// A member of a group of consumers.
#[derive(Debug)]
pub(crate) struct DescribedMember {
    pub(crate) id: String,
    pub(crate) client_id: String,
    /// Such as `/10.0.0.7`.
    pub(crate) host: String,
    /// Topic and partition. Nothing while the brokers are about to change it.
    pub(crate) assignment: Vec<(String, i32)>,
}

/// Why a group is not described.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct DescribeError {
    pub(crate) code: RDKafkaErrorCode,
    text: String,
}

/// How long librdkafka goes on with a request. It must not give up a request by itself: when the coordinator comes back afterwards, it answers
/// the request that it has freed, and ends the process (confluentinc/librdkafka#4605). This is the longest time that it takes.
const NEVER: Duration = Duration::from_secs(3600);

struct AdminOptions(*mut rd_kafka_AdminOptions_t);

impl Drop for AdminOptions {
    fn drop(&mut self) {
        // SAFETY: it was made by `rd_kafka_AdminOptions_new`, and is destroyed here only.
        unsafe { rd_kafka_AdminOptions_destroy(self.0) }
    }
}

struct Queue(*mut rd_kafka_queue_t);

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: it was made by `rd_kafka_queue_new`, and is destroyed here only.
        unsafe { rd_kafka_queue_destroy(self.0) }
    }
}

struct Event(*mut rd_kafka_event_t);

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it was returned by `rd_kafka_queue_poll`, and is destroyed here only.
        unsafe { rd_kafka_event_destroy(self.0) }
    }
}

/// Asks the coordinator of a group for its members. Blocks.
///
/// A request that was not answered in time stays in the client, and must not get older than an hour: drop the client after an error.
///
/// # Errors
/// The coordinator does not answer within `wait`, or the user may not see the group.
pub(crate) fn describe_group<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    group: &str,
    wait: Duration,
) -> Result<GroupDescription, DescribeError> {
    let client = consumer.client().native_ptr();
    let Ok(group) = CString::new(group) else {
        return Err(failed(
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_GROUP_ID,
            "the name of the group has a zero byte".into(),
        ));
    };
    let millis = |wait: Duration| c_int::try_from(wait.as_millis()).unwrap_or(c_int::MAX);
    let mut groups = [group.as_ptr()];
    let mut reason = [0 as c_char; 128];
    // SAFETY: the consumer outlives all that is made from it here. What librdkafka has made is destroyed at the end, in the order event, queue,
    // options; the names and the buffer live during the calls, which copy them.
    unsafe {
        let options = AdminOptions(rd_kafka_AdminOptions_new(
            client,
            rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS,
        ));
        rd_kafka_AdminOptions_set_request_timeout(options.0, millis(NEVER), reason.as_mut_ptr(), reason.len());
        let queue = Queue(rd_kafka_queue_new(client));
        rd_kafka_DescribeConsumerGroups(client, groups.as_mut_ptr(), groups.len(), options.0, queue.0);
        described(&Event(rd_kafka_queue_poll(queue.0, millis(wait))))
    }
}

fn described(event: &Event) -> Result<GroupDescription, DescribeError> {
    let late = || {
        failed(
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__TIMED_OUT,
            "the coordinator of the group does not answer".into(),
        )
    };
    if event.0.is_null() {
        return Err(late());
    }
    // SAFETY: the event is alive until the end of this function, and with it all that it contains. librdkafka returns null or a valid pointer.
    unsafe {
        let code = rd_kafka_event_error(event.0);
        if code != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
            return Err(failed(code, text(rd_kafka_event_error_string(event.0))));
        }
        let result = rd_kafka_event_DescribeConsumerGroups_result(event.0);
        if result.is_null() {
            return Err(late());
        }
        let mut count = 0;
        let all = rd_kafka_DescribeConsumerGroups_result_groups(result, &raw mut count);
        if all.is_null() || count == 0 {
            return Err(late());
        }
        group(*all)
    }
}

/// # Safety
/// The description is alive.
unsafe fn group(description: *const rd_kafka_ConsumerGroupDescription_t) -> Result<GroupDescription, DescribeError> {
    // SAFETY: what is asked of the description lives as long as it does.
    unsafe {
        let error = rd_kafka_ConsumerGroupDescription_error(description);
        if !error.is_null() {
            return match rd_kafka_error_code(error) {
                RDKafkaRespErr::RD_KAFKA_RESP_ERR__INVALID_ARG => Ok(GroupDescription::OfAnotherProtocol),
                // So newer brokers say that there is none.
                RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND => Ok(GroupDescription::Consumers {
                    is_stable: false,
                    members: Vec::new(),
                }),
                code => Err(failed(code, text(rd_kafka_error_string(error)))),
            };
        }
        let state = rd_kafka_ConsumerGroupDescription_state(description);
        let members = (0..rd_kafka_ConsumerGroupDescription_member_count(description))
            .map(|index| rd_kafka_ConsumerGroupDescription_member(description, index))
            .filter(|member| !member.is_null())
            .map(|member| self::member(member))
            .collect();
        Ok(GroupDescription::Consumers {
            is_stable: state == rd_kafka_consumer_group_state_t::RD_KAFKA_CONSUMER_GROUP_STATE_STABLE,
            members,
        })
    }
}

/// # Safety
/// The member is alive.
unsafe fn member(member: *const rd_kafka_MemberDescription_t) -> DescribedMember {
    // SAFETY: what is asked of the member lives as long as it does. A list of partitions has as many elements as it says.
    unsafe {
        let assignment = rd_kafka_MemberDescription_assignment(member);
        let list = if assignment.is_null() {
            ptr::null()
        } else {
            rd_kafka_MemberAssignment_partitions(assignment)
        };
        let elements = match list.as_ref() {
            Some(list) if !list.elems.is_null() => {
                slice::from_raw_parts(list.elems, usize::try_from(list.cnt).unwrap_or_default())
            }
            _ => &[],
        };
        DescribedMember {
            id: text(rd_kafka_MemberDescription_consumer_id(member)),
            client_id: text(rd_kafka_MemberDescription_client_id(member)),
            host: text(rd_kafka_MemberDescription_host(member)),
            assignment: elements
                .iter()
                .map(|element| (text(element.topic), element.partition))
                .collect(),
        }
    }
}

/// # Safety
/// It is null, or a text that ends in a zero byte.
unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: it is not null, and ends in a zero byte.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

fn failed(code: RDKafkaRespErr, text: String) -> DescribeError {
    DescribeError {
        code: code.into(),
        text,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rdkafka::ClientConfig;

    use super::*;
    use crate::demo::DemoCluster;

    /// Only a failing test waits so long.
    const LONG: Duration = Duration::from_secs(60);

    /// The mock broker describes no groups, and the client says so: this is an answer, too.
    #[test]
    fn a_coordinator_that_comes_back_after_an_unanswered_request_is_asked_again() {
        let cluster = DemoCluster::start(1).expect("the mock cluster starts");
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", cluster.bootstrap_servers())
            .set("group.id", "walferry")
            .set("reconnect.backoff.max.ms", "100")
            .create()
            .expect("the settings are valid");
        let asked = |wait| {
            describe_group(&consumer, "group", wait)
                .expect_err("nothing is described")
                .code
        };
        let begun = Instant::now();
        let wait_for = |code, wait| {
            while asked(wait) != code {
                assert!(begun.elapsed() < LONG, "waited in vain for {code:?}");
            }
        };
        wait_for(RDKafkaErrorCode::UnsupportedFeature, LONG);
        for _ in 0..2 {
            cluster.mock().broker_down(1).expect("the mock broker stops");
            wait_for(RDKafkaErrorCode::OperationTimedOut, Duration::from_millis(100));
            cluster.mock().broker_up(1).expect("the mock broker starts");
            wait_for(RDKafkaErrorCode::UnsupportedFeature, LONG);
        }
    }
}
