//! Whether records are refused one soon after another.

/// Counts what arrives between two refusals.
#[derive(Debug, Default)]
pub(crate) struct Thick {
    /// How many records have arrived since the last refusal. `None` before the first one.
    delivered: Option<usize>,
    is_thick: bool,
}

/// So many records that arrive without a refusal are worth a new client.
const FEW: usize = 500;

impl Thick {
    /// Records have arrived.
    pub(crate) fn delivered(&mut self, count: usize) {
        let delivered = self.delivered.unwrap_or(FEW).saturating_add(count);
        self.delivered = Some(delivered);
        self.is_thick &= delivered < FEW;
    }

    /// A record is at fault.
    pub(crate) fn refused(&mut self) {
        self.is_thick = self.delivered.is_some_and(|delivered| delivered < FEW);
        self.delivered = Some(0);
    }

    /// Whether few records have arrived between the last two refusals and since.
    pub(crate) const fn is_thick(&self) -> bool {
        self.is_thick
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_thick_from_the_second_one_until_many_records_have_arrived() {
        let mut thick = Thick::default();
        thick.delivered(3);
        thick.refused();
        assert!(!thick.is_thick());
        thick.delivered(FEW - 1);
        thick.refused();
        assert!(thick.is_thick());
        thick.delivered(FEW - 1);
        assert!(thick.is_thick());
        thick.delivered(1);
        assert!(!thick.is_thick());
        thick.refused();
        assert!(!thick.is_thick());
        thick.refused();
        assert!(thick.is_thick());
    }
}
