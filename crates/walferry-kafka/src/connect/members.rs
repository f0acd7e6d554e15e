//! Who is in the group of a worker, as the brokers tell it, and that no Kafka Connect works beside it.

use std::time::Duration;

use rdkafka::{
    TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use tracing::warn;
use walferry_engine::{Failure, Kind};

use super::{
    ConnectTopics,
    client_id::address_in,
    group::REQUEST,
    group_view::{GroupView, Member},
    places::Places,
};
use crate::{
    auth::tokens::LoggedIn,
    client::Properties,
    failure,
    native::group::{DescribeError, DescribedMember, GroupDescription, describe_group},
};

/// The name of the work topic of a group.
pub(super) fn work_topic(group: &str) -> String {
    format!("walferry-{group}-work")
}

impl Places {
    pub(super) fn of(list: &TopicPartitionList, config_topic: &str) -> Self {
        let mut places = Self::default();
        for element in list.elements() {
            if element.topic() == config_topic {
                // Others were added to it later.
                places.leads |= element.partition() == 0;
            } else {
                places.partitions.insert(element.partition());
            }
        }
        places
    }
}

/// Asks the brokers for the members of a group.
pub struct GroupReader {
    /// Made again after a question that was not answered: [`describe_group`] says why.
    consumer: Option<LoggedIn<BaseConsumer>>,
    /// How long an answer is waited for.
    wait: Duration,
    client: Properties,
    group: String,
    config_topic: String,
    work_topic: String,
}

impl std::fmt::Debug for GroupReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupReader").field("group", &self.group).finish()
    }
}

/// Why a group cannot be seen.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error(transparent)]
    Describe(#[from] DescribeError),
    #[error(transparent)]
    Client(#[from] KafkaError),
}

impl LookError {
    /// Whether the client still has the question.
    fn is_pending(&self) -> bool {
        matches!(self, Self::Describe(error) if error.code == Code::OperationTimedOut)
    }
}

/// A client that joins no group. Blocks only while it logs in.
fn consumer(client: &Properties) -> Result<LoggedIn<BaseConsumer>, Failure> {
    let mut config = client.config();
    // The Kafka client requires this setting.
    config.set("group.id", "walferry");
    let consumer: BaseConsumer = config.create().map_err(|error| failure::of_settings(&error))?;
    let consumer = LoggedIn::new(consumer, client);
    consumer.ready()?;
    Ok(consumer)
}

fn unreachable(client: &Properties, error: &LookError) -> Failure {
    let servers = client.values.get("bootstrap.servers").map_or("", String::as_str);
    failure::unreachable(servers, &error.to_string())
}

impl GroupReader {
    /// Makes the client. Blocks only while it logs in.
    ///
    /// # Errors
    /// The client cannot be made.
    pub fn open(topics: &ConnectTopics) -> Result<Self, Failure> {
        Ok(Self {
            consumer: Some(consumer(&topics.client)?),
            wait: REQUEST,
            client: topics.client.clone(),
            group: topics.group.clone(),
            config_topic: topics.config.name.clone(),
            work_topic: work_topic(&topics.group),
        })
    }

    /// The number of partitions of a topic. Blocks.
    ///
    /// # Errors
    /// Kafka does not answer.
    pub(super) fn partitions_of(&mut self, topic: &str) -> Result<usize, Failure> {
        self.ask(|this, consumer| {
            // For all topics: asking for one could make a broker create it.
            let metadata = consumer.fetch_metadata(None, this.wait)?;
            let found = metadata.topics().iter().find(|found| found.name() == topic);
            Ok(found.map_or(0, |found| found.partitions().len()))
        })
    }

    /// Asks with a client that has no other question left to answer.
    fn ask<T>(&mut self, question: impl FnOnce(&Self, &BaseConsumer) -> Result<T, LookError>) -> Result<T, Failure> {
        let asked = match self.consumer.take() {
            Some(asked) => asked,
            None => consumer(&self.client)?,
        };
        let answer = question(self, &asked);
        if !answer.as_ref().is_err_and(LookError::is_pending) {
            self.consumer = Some(asked);
        }
        answer.map_err(|error| unreachable(&self.client, &error))
    }

    /// The members now. Blocks.
    ///
    /// # Errors
    /// Kafka does not answer, or the user may not see the group.
    pub fn look(&mut self) -> Result<GroupView, Failure> {
        self.ask(Self::view)
    }

    fn view(&self, consumer: &BaseConsumer) -> Result<GroupView, LookError> {
        let ours = format!("walferry-{}", self.group);
        let mut view = GroupView::default();
        if let GroupDescription::Consumers { is_stable, members } = describe_group(consumer, &ours, self.wait)? {
            view.is_settled = is_stable;
            view.members = members.into_iter().map(|member| self.member(member)).collect();
        }
        view.members
            .sort_by(|a, b| (&a.address, &a.client_id, &a.host).cmp(&(&b.address, &b.client_id, &b.host)));
        view.of_connect = connect_workers(consumer, &self.group, self.wait)?.unwrap_or_default();
        Ok(view)
    }

    fn member(&self, described: DescribedMember) -> Member {
        let (address, shares) = address_in(&described.client_id).unzip();
        let mut places = Places::default();
        for (topic, partition) in described.assignment {
            if topic == self.config_topic {
                places.leads |= partition == 0;
            } else if topic == self.work_topic {
                places.partitions.insert(partition);
            }
        }
        Member {
            id: described.id,
            address: address.map(str::to_owned),
            shares: shares.unwrap_or_default(),
            client_id: described.client_id,
            host: described.host,
            places,
        }
    }
}

impl ConnectTopics {
    /// Checks that all Connect workers of the group have ended, because two processes would write offsets for one connector. Blocks.
    ///
    /// # Errors
    /// Some are still alive, or Kafka cannot be reached.
    pub fn refuse_beside_connect(&self) -> Result<(), Failure> {
        let members = connect_workers(&*consumer(&self.client)?, &self.group, REQUEST)
            .map_err(|error| unreachable(&self.client, &error))?;
        let Some(members) = members else {
            warn!(
                group = self.group,
                hint = format!(
                    "grant the Kafka user Describe on the group (`kafka-acls --add --operation Describe --group {} …`)",
                    self.group
                ),
                "the Kafka user is not allowed to see the group of Kafka Connect, so it is not known whether Connect's workers have ended"
            );
            return Ok(());
        };
        if members.is_empty() {
            return Ok(());
        }
        Err(Failure::stop(
            Kind::ConnectRuns,
            format!(
                "Kafka Connect is still using the topics of group {:?}, with {} worker(s): {}",
                self.group,
                members.len(),
                members.join(", ")
            ),
            "stop these workers first; a worker that was killed leaves the group after its session.timeout.ms, 10 s. To run beside them, \
             keep the state of this process in files with --data-dir",
        ))
    }
}

/// The workers of Kafka Connect in a group: name and host. `None` if the user may not see the group. Blocks.
fn connect_workers(consumer: &BaseConsumer, group: &str, wait: Duration) -> Result<Option<Vec<String>>, LookError> {
    match describe_group(consumer, group, wait) {
        Ok(GroupDescription::OfAnotherProtocol) => {}
        Ok(GroupDescription::Consumers { .. }) => return Ok(Some(Vec::new())),
        Err(error) if error.code == Code::GroupAuthorizationFailed => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    // librdkafka has no other call that describes members of other protocols. It fails while a broker is down.
    let found = consumer.fetch_group_list(Some(group), wait)?;
    let workers = found
        .groups()
        .iter()
        .filter(|found| found.name() == group && found.protocol_type() == "connect")
        .flat_map(|found| found.members())
        .map(|member| format!("{}{}", member.client_id(), member.client_host()));
    Ok(Some(workers.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{connect::tests::topics, demo::DemoCluster};

    /// The mock broker describes no groups, and the client says so: this is an answer, too.
    #[test]
    fn a_client_with_an_unanswered_question_is_not_asked_another_one() {
        let cluster = DemoCluster::start(1).unwrap();
        let mut reader = GroupReader::open(&topics(&cluster)).unwrap();
        let answered = |reader: &mut GroupReader| {
            let text = reader.look().unwrap_err().to_string();
            assert!(text.contains("not supported"), "{text}");
            assert!(reader.consumer.is_some(), "an answer of any kind costs no client");
        };
        for _ in 0..2 {
            answered(&mut reader);
            cluster.mock().broker_down(1).unwrap();
            reader.wait = Duration::from_millis(100);
            // A question that was under way fails; the next one waits for the connection.
            while reader.look().is_err() && reader.consumer.is_some() {}
            assert!(reader.consumer.is_none());
            reader.wait = REQUEST;
            cluster.mock().broker_up(1).unwrap();
        }
        answered(&mut reader);
    }

    #[test]
    fn where_one_member_does_not_share_the_leader_runs_everything() {
        let member = |address: Option<&str>, leads, partitions: &[i32]| Member {
            id: "i".into(),
            client_id: "c".into(),
            host: "/h".into(),
            address: address.map(str::to_owned),
            shares: address.is_some(),
            places: Places {
                leads,
                partitions: partitions.iter().copied().collect(),
            },
        };
        let (a, b) = (
            member(Some("http://a:1"), false, &[1, 2]),
            member(Some("http://b:1"), true, &[3]),
        );
        let mut view = GroupView {
            members: vec![a.clone(), b.clone()],
            ..GroupView::default()
        };
        assert_eq!(
            (view.owner(2), view.owner(3), view.owner(4)),
            (Some(&a), Some(&b), None)
        );
        view.members.push(member(None, false, &[]));
        assert_eq!((view.owner(2), view.owner(4)), (Some(&b), Some(&b)));
    }
}
