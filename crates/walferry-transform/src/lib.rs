//! Record to records: EventRouter and predicates.
