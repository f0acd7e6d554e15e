//! Operators between two values.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    /// `===`.
    Same,
    /// `!==`.
    NotSame,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// `<=>`.
    Compare,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}
