//! Groovy's ranges. What they contain is worked out, and no walk through them is needed.

use super::number::{Arithmetic, Number};

/// A range, from its first element to its last.
#[derive(Debug, Clone)]
pub(crate) enum Range {
    /// Without any element.
    Empty(Number),
    /// Of two `Integer`s. It contains no other numbers.
    Integers { from: i32, to: i32, exclusive: bool },
    /// Of other numbers, in steps of one. It contains every number that equals one of the steps.
    Numbers { from: Number, to: Number, exclusive: bool },
    /// Of texts that differ in their last character.
    Texts { before: String, from: u16, to: u16 },
}

/// An element of a range.
#[derive(Debug, Clone)]
pub(crate) enum RangeElement {
    Number(Number),
    Text(String),
}

/// More elements than these are not made.
const LONGEST: usize = 10_000;

impl Range {
    /// `from..to` or `from..<to` of two numbers.
    pub(super) fn of_numbers(from: &Number, to: &Number, exclusive: bool) -> Result<Self, String> {
        if exclusive && from.compare(to).is_eq() {
            return Ok(Self::Empty(from.clone()));
        }
        if let (Number::Int(from), Number::Int(to)) = (from, to) {
            // As many elements as Java can count.
            return match i64::from(*from).abs_diff(i64::from(*to)) < u64::from(i32::MAX.unsigned_abs()) {
                true => Ok(Self::Integers {
                    from: *from,
                    to: *to,
                    exclusive,
                }),
                false => Err("a range has more elements than Groovy can count".into()),
            };
        }
        let is_long = matches!((from, to), (Number::Long(_), _) | (_, Number::Long(_)));
        let widened = |number: &Number| match (number, number.integer()) {
            (Number::Float(n), _) => Number::Double(f64::from(*n)),
            (_, Some(n)) if is_long => Number::Long(n),
            _ => number.clone(),
        };
        Ok(Self::Numbers {
            from: widened(from),
            to: widened(to),
            exclusive,
        })
    }

    /// The same of two texts.
    pub(super) fn of_texts(from: &str, to: &str, exclusive: bool) -> Result<Self, String> {
        let (first, last): (Vec<u16>, Vec<u16>) = (from.encode_utf16().collect(), to.encode_utf16().collect());
        let (Some((from, before)), Some((to, other))) = (first.split_last(), last.split_last()) else {
            return Err("a range goes from one text to another, and one of them is empty".into());
        };
        if before != other {
            return Err("the texts of a range differ in more than their last character".into());
        }
        if exclusive && from == to {
            return Ok(Self::Empty(Number::Int(0)));
        }
        let step = |to: u16| if *from < to { to - 1 } else { to + 1 };
        Ok(Self::Texts {
            before: String::from_utf16_lossy(before),
            from: *from,
            to: if exclusive { step(*to) } else { *to },
        })
    }

    /// The least and the largest `Integer`.
    pub(super) fn bounds(&self) -> (i64, i64) {
        let Self::Integers { from, to, exclusive } = *self else {
            return (0, -1);
        };
        let (from, to) = (i64::from(from), i64::from(to));
        match (from <= to, exclusive) {
            (true, _) => (from, to - i64::from(exclusive)),
            (false, _) => (to + i64::from(exclusive), from),
        }
    }

    pub(super) fn length(&self) -> usize {
        match self {
            Self::Empty(_) => 0,
            Self::Integers { .. } => {
                let (least, most) = self.bounds();
                usize::try_from(most - least + 1).unwrap_or(0)
            }
            Self::Texts { from, to, .. } => usize::from(from.abs_diff(*to)) + 1,
            Self::Numbers { .. } => self.steps(usize::MAX).map_or(0, |(count, _)| count),
        }
    }

    /// The element at a place.
    pub(super) fn element(&self, place: usize) -> Option<RangeElement> {
        match self {
            Self::Integers { from, to, .. } if place < self.length() => {
                let place = i64::try_from(place).ok()?;
                let element = i64::from(*from) + if from <= to { place } else { -place };
                i32::try_from(element).ok().map(RangeElement::integer)
            }
            Self::Integers { .. } => None,
            _ => self.elements().ok()?.get(place).cloned(),
        }
    }

    /// How many steps of other numbers there are, and the numbers, of which at most so many are made.
    fn steps(&self, most: usize) -> Option<(usize, Vec<Number>)> {
        let Self::Numbers { from, to, exclusive } = self else {
            return None;
        };
        let is_up = from.compare(to).is_le();
        let step = if is_up { Arithmetic::Add } else { Arithmetic::Subtract };
        if most == usize::MAX
            && let Some(whole) = to.arithmetic(from, Arithmetic::Subtract)
        {
            // Counted without a walk, as Groovy does it.
            let count = usize::try_from(whole.absolute().long()).ok()?;
            return Some((count + usize::from(!*exclusive), Vec::new()));
        }
        let mut numbers = Vec::new();
        let mut next = from.clone();
        while numbers.len() < most && is_between(from, to, *exclusive, &next) {
            numbers.push(next.clone());
            next = next.arithmetic(&Number::Int(1), step)?;
        }
        Some((numbers.len(), numbers))
    }

    /// All elements. `Err` where there are too many.
    pub(super) fn elements(&self) -> Result<Vec<RangeElement>, String> {
        let too_long = || Err(format!("a range has more than {LONGEST} elements"));
        Ok(match self {
            Self::Empty(_) => Vec::new(),
            Self::Integers { from, to, .. } => {
                if self.length() > LONGEST {
                    return too_long();
                }
                let (least, most) = self.bounds();
                let integer = |n: i64| RangeElement::integer(i32::try_from(n).unwrap_or(i32::MAX));
                match from <= to {
                    true => (least..=most).map(integer).collect(),
                    false => (least..=most).rev().map(integer).collect(),
                }
            }
            Self::Numbers { .. } => match self.steps(LONGEST + 1) {
                Some((count, numbers)) if count <= LONGEST => numbers.into_iter().map(RangeElement::Number).collect(),
                _ => return too_long(),
            },
            Self::Texts { before, from, to } => {
                if self.length() > LONGEST {
                    return too_long();
                }
                let text = |unit: u16| RangeElement::Text(before.clone() + &String::from_utf16_lossy(&[unit]));
                match from <= to {
                    true => (*from..=*to).map(text).collect(),
                    false => (*to..=*from).rev().map(text).collect(),
                }
            }
        })
    }

    /// The part of something of this length that `[range]` means, as where it begins and ends, and whether it is to be reversed.
    pub(super) fn part(&self, length: usize) -> Option<(usize, usize, bool)> {
        let (from, to, exclusive) = match self {
            Self::Empty(_) => return Some((0, 0, false)),
            Self::Integers { from, to, exclusive } => (i64::from(*from), i64::from(*to), *exclusive),
            Self::Numbers { from, to, exclusive } => (from.integer()?, to.integer()?, *exclusive),
            Self::Texts { .. } => return None,
        };
        let length = i64::try_from(length).ok()?;
        let counted = |at: i64| if at < 0 { at.saturating_add(length) } else { at };
        let (from, to) = (counted(from), counted(to));
        let (begin, end, reversed) = match from > to {
            true => (to.saturating_add(i64::from(exclusive)), from.saturating_add(1), true),
            false => (from, to.saturating_add(i64::from(!exclusive)), false),
        };
        (0 <= begin && begin <= end && end <= length)
            .then(|| Some((usize::try_from(begin).ok()?, usize::try_from(end).ok()?, reversed)))?
    }

    /// `toString()`: `1..3`.
    pub(super) fn text(&self) -> String {
        let text_of = |number: &Number| {
            let mut text = String::new();
            number.push(&mut text);
            text
        };
        match self {
            Self::Empty(from) => format!("{0}..<{0}", text_of(from)),
            Self::Integers { from, to, exclusive } => format!("{from}..{}{to}", if *exclusive { "<" } else { "" }),
            Self::Numbers { from, to, exclusive } => {
                format!(
                    "{}..{}{}",
                    text_of(from),
                    if *exclusive { "<" } else { "" },
                    text_of(to)
                )
            }
            Self::Texts { before, from, to } => {
                let [from, to] = [from, to].map(|unit| String::from_utf16_lossy(&[*unit]));
                format!("{before}{from}..{before}{to}")
            }
        }
    }
}

impl RangeElement {
    const fn integer(number: i32) -> Self {
        Self::Number(Number::Int(number))
    }
}

/// Whether a number is between two others.
pub(super) fn is_between(from: &Number, to: &Number, exclusive: bool, number: &Number) -> bool {
    let (behind_from, before_to) = (number.compare(from), number.compare(to));
    let is_up = from.compare(to).is_le();
    match (is_up, exclusive) {
        (true, false) => behind_from.is_ge() && before_to.is_le(),
        (true, true) => behind_from.is_ge() && before_to.is_lt(),
        (false, false) => behind_from.is_le() && before_to.is_ge(),
        (false, true) => behind_from.is_le() && before_to.is_gt(),
    }
}
