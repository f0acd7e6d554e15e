//! What the offset writer needs from the disk.

use std::{future::Future, time::Duration};

use crate::failure::Failure;

/// Keeps the last offset of one connector.
pub trait Store<O> {
    /// Replaces the stored offset. The new one is durable when this returns.
    ///
    /// # Errors
    /// The store cannot be written. The failure's disposition says whether another try may help.
    fn write(&mut self, offset: &O) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Shortest pause between two writes.
    fn least_pause(&self) -> Duration;

    /// Removes the question to a person that is kept beside the offset: it is settled.
    ///
    /// # Errors
    /// The same.
    fn remove_question(&mut self) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Removes the wishes of a person that are kept beside the offset and that this stored offset settles.
    ///
    /// # Errors
    /// The same.
    fn remove_wishes(&mut self, offset: &O) -> impl Future<Output = Result<(), Failure>> + Send;
}
