use std::fmt;

/// The object identifier of a relation or a type, as the catalog has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid(pub u32);

/// A transaction id as the stream carries it: 32 bits that wrap around, so it has no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Xid(pub u32);

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u32> for Oid {
    fn from(oid: u32) -> Self {
        Self(oid)
    }
}

impl From<u32> for Xid {
    fn from(xid: u32) -> Self {
        Self(xid)
    }
}
