//! Well-known binary (WKB), the form in which geometries are sent, and PostGIS's extension of it (EWKB), which also holds an SRID.

/// The type says that the SRID stands behind it.
const HAS_SRID: u32 = 0x2000_0000;
const HAS_Z: u32 = 0x8000_0000;
const HAS_M: u32 = 0x4000_0000;
/// Debezium looks at this part of the type only.
const KIND: u32 = 0xFF;
/// How deep collections of geometries may be nested. PostGIS stops long before.
const DEPTH: usize = 1000;

/// Bytes that are no geometry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("a geometry ends after {0} bytes, in the middle of something")]
    Truncated(usize),
    #[error("a geometry has type {0}, but only types 1 to 7 are supported")]
    Kind(u32),
    #[error("a geometry contains collections that are nested more than {DEPTH} levels deep")]
    Depth,
}

/// Whether the bytes hold an SRID.
pub(super) fn is_extended(wkb: &[u8]) -> bool {
    let mut input = Input::new(wkb);
    let kind = input.order().and_then(|_| input.word());
    kind.is_ok_and(|kind| kind & HAS_SRID != 0)
}

/// The same geometry with an SRID, where it has none.
pub(super) fn with_srid(wkb: &[u8], srid: i32) -> Result<Vec<u8>, Malformed> {
    let mut input = Input::new(wkb);
    let mut output = Output::new(&mut input, wkb.len() + 4)?;
    output.word(input.word()? | HAS_SRID);
    output.word(srid.cast_unsigned());
    output.bytes.extend_from_slice(input.unread());
    Ok(output.bytes)
}

/// The same geometry without its SRID.
pub(super) fn without_srid(ewkb: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut input = Input::new(ewkb);
    let mut output = Output::new(&mut input, ewkb.len())?;
    output.word(input.word()? & !HAS_SRID);
    input.word()?;
    output.bytes.extend_from_slice(input.unread());
    Ok(output.bytes)
}

/// The same geometry with the first two coordinates of each point swapped. What stands behind the geometry is left out.
pub(super) fn swapped(wkb: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut input = Input::new(wkb);
    let output = Output::new(&mut input, wkb.len())?;
    let mut swap = Swap { input, output };
    swap.geometry(0)?;
    Ok(swap.output.bytes)
}

struct Swap<'w> {
    input: Input<'w>,
    output: Output,
}

impl Swap<'_> {
    /// A geometry behind its byte order.
    fn geometry(&mut self, depth: usize) -> Result<(), Malformed> {
        if depth > DEPTH {
            return Err(Malformed::Depth);
        }
        let kind = self.word()?;
        let stride = 2 + usize::from(kind & HAS_Z != 0) + usize::from(kind & HAS_M != 0);
        if kind & HAS_SRID != 0 {
            self.word()?;
        }
        match kind & KIND {
            1 => self.point(stride),
            2 => self.line(stride),
            3 => self.polygon(stride),
            // The parts have a type each. As in Debezium the type of the whole tells how many coordinates a point has.
            4 => self.parts(|this| this.word().and_then(|_| this.point(stride))),
            5 => self.parts(|this| this.word().and_then(|_| this.line(stride))),
            6 => self.parts(|this| this.word().and_then(|_| this.polygon(stride))),
            7 => self.parts(|this| this.geometry(depth + 1)),
            other => Err(Malformed::Kind(other)),
        }
    }

    /// Parts with a byte order each, behind their number.
    fn parts(&mut self, part: impl Fn(&mut Self) -> Result<(), Malformed>) -> Result<(), Malformed> {
        for _ in 0..self.count()? {
            let outer = self.input.is_little;
            // As Debezium, whose output keeps the byte order of the whole.
            let order = self.input.order()?;
            self.output.bytes.push(order);
            part(self)?;
            self.input.is_little = outer;
        }
        Ok(())
    }

    fn polygon(&mut self, stride: usize) -> Result<(), Malformed> {
        for _ in 0..self.count()? {
            self.line(stride)?;
        }
        Ok(())
    }

    /// A line, or the ring of a polygon.
    fn line(&mut self, stride: usize) -> Result<(), Malformed> {
        for _ in 0..self.count()? {
            self.point(stride)?;
        }
        Ok(())
    }

    fn point(&mut self, stride: usize) -> Result<(), Malformed> {
        let (first, second) = (self.input.ordinate()?, self.input.ordinate()?);
        self.output.ordinate(second);
        self.output.ordinate(first);
        for _ in 2..stride {
            let ordinate = self.input.ordinate()?;
            self.output.ordinate(ordinate);
        }
        Ok(())
    }

    /// A number of parts. Debezium takes a number above 2³¹ for a negative one, which means none.
    fn count(&mut self) -> Result<i32, Malformed> {
        self.word().map(u32::cast_signed)
    }

    fn word(&mut self) -> Result<u32, Malformed> {
        let word = self.input.word()?;
        self.output.word(word);
        Ok(word)
    }
}

struct Input<'w> {
    wkb: &'w [u8],
    at: usize,
    is_little: bool,
}

impl<'w> Input<'w> {
    const fn new(wkb: &'w [u8]) -> Self {
        let (at, is_little) = (0, false);
        Self { wkb, at, is_little }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let bytes = self
            .unread()
            .first_chunk()
            .ok_or(Malformed::Truncated(self.wkb.len()))?;
        self.at += N;
        Ok(*bytes)
    }

    /// The byte that tells the order of the bytes behind it.
    fn order(&mut self) -> Result<u8, Malformed> {
        let [order] = self.take()?;
        self.is_little = order == 1;
        Ok(order)
    }

    fn word(&mut self) -> Result<u32, Malformed> {
        let bytes = self.take()?;
        Ok(match self.is_little {
            true => u32::from_le_bytes(bytes),
            false => u32::from_be_bytes(bytes),
        })
    }

    /// The bits of a coordinate.
    fn ordinate(&mut self) -> Result<u64, Malformed> {
        let bytes = self.take()?;
        Ok(match self.is_little {
            true => u64::from_le_bytes(bytes),
            false => u64::from_be_bytes(bytes),
        })
    }

    fn unread(&self) -> &'w [u8] {
        &self.wkb[self.at..]
    }
}

struct Output {
    bytes: Vec<u8>,
    is_little: bool,
}

impl Output {
    /// An output that begins with the byte order of the input, and keeps it.
    fn new(input: &mut Input<'_>, capacity: usize) -> Result<Self, Malformed> {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.push(input.order()?);
        let is_little = input.is_little;
        Ok(Self { bytes, is_little })
    }

    fn word(&mut self, word: u32) {
        self.bytes.extend(match self.is_little {
            true => word.to_le_bytes(),
            false => word.to_be_bytes(),
        });
    }

    fn ordinate(&mut self, bits: u64) {
        self.bytes.extend(match self.is_little {
            true => bits.to_le_bytes(),
            false => bits.to_be_bytes(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(is_little: bool, kind: u32, srid: Option<u32>, ordinates: &[f64]) -> Vec<u8> {
        let mut output = Output {
            bytes: vec![u8::from(is_little)],
            is_little,
        };
        output.word(kind);
        srid.into_iter().for_each(|srid| output.word(srid));
        ordinates
            .iter()
            .for_each(|ordinate| output.ordinate(ordinate.to_bits()));
        output.bytes
    }

    #[test]
    fn an_srid_comes_and_goes() {
        for is_little in [true, false] {
            let plain = point(is_little, 1, None, &[1.0, 2.0]);
            let extended = point(is_little, 1 | HAS_SRID, Some(4326), &[1.0, 2.0]);
            assert!(is_extended(&extended) && !is_extended(&plain));
            assert_eq!(with_srid(&plain, 4326), Ok(extended.clone()));
            assert_eq!(without_srid(&extended), Ok(plain));
        }
        assert_eq!(with_srid(&[1, 1, 0], 4326), Err(Malformed::Truncated(3)));
        assert!(!is_extended(&[1, 1, 0]) && !is_extended(&[]));
    }

    #[test]
    fn coordinates_are_swapped_in_parts_and_in_nested_collections() {
        let collection = |inner: &[u8]| [&[1, 7, 0, 0, 0, 1, 0, 0, 0], inner].concat();
        let inner = |x, y| point(true, 1 | HAS_Z, None, &[x, y, 3.0]);
        let nested = |x, y| collection(&collection(&inner(x, y)));
        assert_eq!(swapped(&nested(1.0, 2.0)), Ok(nested(2.0, 1.0)));
    }

    #[test]
    fn what_is_no_geometry_is_refused() {
        let deep: Vec<u8> = [1, 7, 0, 0, 0, 1, 0, 0, 0].repeat(100_000);
        let cases = [
            (vec![], Malformed::Truncated(0)),
            (vec![1, 2, 0, 0, 0, 255, 255, 255, 127], Malformed::Truncated(9)),
            (vec![0, 0, 0, 3, 233], Malformed::Kind(233)),
            (deep, Malformed::Depth),
        ];
        for (wkb, expected) in cases {
            assert_eq!(swapped(&wkb), Err(expected));
        }
    }
}
