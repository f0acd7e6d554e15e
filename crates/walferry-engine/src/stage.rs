//! The stages of a record's way to Kafka.

/// The stage at which a record failed or waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The event is made from the change.
    Event,
    /// The chain of transforms.
    Transformation,
    /// The converter of headers.
    HeaderConverter,
    /// The converter of keys.
    KeyConverter,
    /// The converter of values.
    ValueConverter,
    /// None of them failed: a person wants the record passed over.
    PassedOver,
}

impl Stage {
    /// The name of the stage in the log and in the headers of dead letters: Connect's name, or `EVENT` or `PASSED_OVER`, which Connect
    /// does not have.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Event => "EVENT",
            Self::Transformation => "TRANSFORMATION",
            Self::HeaderConverter => "HEADER_CONVERTER",
            Self::KeyConverter => "KEY_CONVERTER",
            Self::ValueConverter => "VALUE_CONVERTER",
            Self::PassedOver => "PASSED_OVER",
        }
    }
}
