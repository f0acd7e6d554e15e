//! What the brokers give to a member of a worker's group, and how they say it.

use std::{collections::BTreeSet, str};

/// No assignment names more topics or partitions than this. A longer one is not Walferry's.
const MOST: usize = 10_000;

/// What the brokers give to a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// The configuration topic.
    pub leads: bool,
    /// Partitions of the work topic.
    pub partitions: BTreeSet<i32>,
}

impl Places {
    /// What an assignment of Kafka's consumer protocol (`ConsumerProtocolAssignment`) gives to a member. `None` if it is cut off.
    pub(super) fn read(bytes: &[u8], config_topic: &str, work_topic: &str) -> Option<Self> {
        struct Reading<'a>(&'a [u8]);
        impl<'a> Reading<'a> {
            fn take(&mut self, length: usize) -> Option<&'a [u8]> {
                let (taken, left) = self.0.split_at_checked(length)?;
                self.0 = left;
                Some(taken)
            }
            fn number(&mut self) -> Option<i32> {
                self.take(4)
                    .map(|taken| i32::from_be_bytes([taken[0], taken[1], taken[2], taken[3]]))
            }
            fn count(&mut self) -> Option<usize> {
                usize::try_from(self.number()?).ok().filter(|count| *count <= MOST)
            }
            fn text(&mut self) -> Option<&'a str> {
                let taken = self.take(2)?;
                let length = usize::try_from(i16::from_be_bytes([taken[0], taken[1]])).ok()?;
                str::from_utf8(self.take(length)?).ok()
            }
        }
        let mut reading = Reading(bytes);
        let _version = reading.take(2)?;
        let mut places = Self::default();
        for _ in 0..reading.count()? {
            let topic = reading.text()?;
            let partitions: Option<BTreeSet<i32>> = (0..reading.count()?).map(|_| reading.number()).collect();
            let partitions = partitions?;
            if topic == config_topic {
                places.leads = partitions.contains(&0);
            } else if topic == work_topic {
                places.partitions = partitions;
            }
        }
        Some(places)
    }

    pub(super) fn add(&mut self, more: &Self) {
        self.leads |= more.leads;
        self.partitions.extend(&more.partitions);
    }

    pub(super) fn remove(&mut self, less: &Self) {
        self.leads &= !less.leads;
        self.partitions.retain(|partition| !less.partitions.contains(partition));
    }

    /// Whether it is nothing.
    pub fn is_empty(&self) -> bool {
        !self.leads && self.partitions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_is_read_and_one_that_is_cut_off_gives_nothing() {
        let mut bytes = vec![0, 1, 0, 0, 0, 3];
        for (topic, partitions) in [("configs", vec![0]), ("work", vec![3, 63]), ("other", vec![1])] {
            bytes.extend((topic.len() as i16).to_be_bytes());
            bytes.extend(topic.as_bytes());
            bytes.extend((partitions.len() as i32).to_be_bytes());
            bytes.extend(partitions.iter().flat_map(|partition: &i32| partition.to_be_bytes()));
        }
        let whole = bytes.len();
        bytes.extend([0xff; 4]);
        let expected = Places {
            leads: true,
            partitions: BTreeSet::from([3, 63]),
        };
        assert_eq!(Places::read(&bytes, "configs", "work"), Some(expected));
        for length in 0..whole {
            assert_eq!(Places::read(&bytes[..length], "configs", "work"), None, "{length}");
        }
        assert_eq!(Places::read(&[0, 1, 0x7f, 0xff, 0xff, 0xff], "configs", "work"), None);
    }
}
