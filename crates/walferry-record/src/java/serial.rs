//! `java.io.Serializable`: arrays of the few classes that Debezium keeps in an offset as the key of a row.
//!
//! The protocol is that of `ObjectOutputStream` (Java Object Serialization Specification, chapter 6). Class descriptors, texts and
//! objects are numbered as they come, and what comes again is a reference to that number.

use num_bigint::{BigInt, Sign};

use crate::Decimal;

/// An object of one of these classes.
#[derive(Debug, Clone, PartialEq)]
pub enum Object {
    /// `null`.
    Null,
    /// `java.lang.Boolean`.
    Boolean(bool),
    /// `java.lang.Short`.
    Short(i16),
    /// `java.lang.Integer`.
    Integer(i32),
    /// `java.lang.Long`.
    Long(i64),
    /// `java.lang.Float`.
    Float(f32),
    /// `java.lang.Double`.
    Double(f64),
    /// `java.lang.String`.
    Text(String),
    /// `java.util.UUID`.
    Uuid(u128),
    /// `java.math.BigDecimal`.
    Decimal(Decimal),
}

/// Why bytes cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SerialError {
    /// They are cut off, or not what Java writes.
    #[error("it is no array that Java has serialised: {0}")]
    Malformed(&'static str),
    /// There is an object of a class that is none of [`Object`].
    #[error("it holds an object of the class {0}")]
    Class(String),
}

const MAGIC: [u8; 4] = [0xAC, 0xED, 0, 5];
const NULL: u8 = 0x70;
const REFERENCE: u8 = 0x71;
const CLASS: u8 = 0x72;
const OBJECT: u8 = 0x73;
const STRING: u8 = 0x74;
const ARRAY: u8 = 0x75;
const BLOCK: u8 = 0x77;
const END_BLOCK: u8 = 0x78;
const LONG_STRING: u8 = 0x7C;
const FIRST_HANDLE: u32 = 0x007E_0000;
/// The class writes more than its fields: an end of block follows them.
const WRITES_MORE: u8 = 1;

/// A class as the stream describes it.
struct Class {
    name: &'static str,
    version: u64,
    flags: u8,
    /// Type and name of a field, and the class's name where it is an object.
    fields: &'static [(u8, &'static str, &'static str)],
    parent: Option<&'static Self>,
}

macro_rules! class {
    ($name:ident, $java:literal, $version:literal, $flags:literal, $fields:expr, $parent:expr) => {
        static $name: Class = Class {
            name: $java,
            version: $version,
            flags: $flags,
            fields: $fields,
            parent: $parent,
        };
    };
}

class!(OBJECTS, "[Ljava.lang.Object;", 0x90CE_589F_1073_296C, 2, &[], None);
class!(BYTES, "[B", 0xACF3_17F8_0608_54E0, 2, &[], None);
class!(NUMBER, "java.lang.Number", 0x86AC_951D_0B94_E08B, 2, &[], None);
class!(
    BOOLEAN,
    "java.lang.Boolean",
    0xCD20_7280_D59C_FAEE,
    2,
    &[(b'Z', "value", "")],
    None
);
class!(
    SHORT,
    "java.lang.Short",
    0x684D_3713_3460_DA52,
    2,
    &[(b'S', "value", "")],
    Some(&NUMBER)
);
class!(
    INTEGER,
    "java.lang.Integer",
    0x12E2_A0A4_F781_8738,
    2,
    &[(b'I', "value", "")],
    Some(&NUMBER)
);
class!(
    LONG,
    "java.lang.Long",
    0x3B8B_E490_CC8F_23DF,
    2,
    &[(b'J', "value", "")],
    Some(&NUMBER)
);
class!(
    FLOAT,
    "java.lang.Float",
    0xDAED_C9A2_DB3C_F0EC,
    2,
    &[(b'F', "value", "")],
    Some(&NUMBER)
);
class!(
    DOUBLE,
    "java.lang.Double",
    0x80B3_C24A_296B_FB04,
    2,
    &[(b'D', "value", "")],
    Some(&NUMBER)
);
class!(
    UUID,
    "java.util.UUID",
    0xBC99_03F7_986D_852F,
    2,
    &[(b'J', "leastSigBits", ""), (b'J', "mostSigBits", "")],
    None
);
class!(
    DECIMAL,
    "java.math.BigDecimal",
    0x54C7_1557_F981_284F,
    3,
    &[(b'I', "scale", ""), (b'L', "intVal", "Ljava/math/BigInteger;")],
    Some(&NUMBER)
);
class!(
    INTEGER_OF_ANY_SIZE,
    "java.math.BigInteger",
    0x8CFC_9F1F_A93B_FB1D,
    3,
    &[
        (b'I', "bitCount", ""),
        (b'I', "bitLength", ""),
        (b'I', "firstNonzeroByteNum", ""),
        (b'I', "lowestSetBit", ""),
        (b'I', "signum", ""),
        (b'[', "magnitude", "[B"),
    ],
    Some(&NUMBER)
);

/// What `ObjectOutputStream.writeObject` makes of an `Object[]`, or of `null`.
pub fn write(array: Option<&[Object]>) -> Vec<u8> {
    let mut writer = Writer {
        out: MAGIC.to_vec(),
        classes: Vec::new(),
        next: FIRST_HANDLE,
    };
    match array {
        None => writer.out.push(NULL),
        Some(array) => {
            writer.out.push(ARRAY);
            writer.class(&OBJECTS);
            writer.next += 1;
            writer.int(i32::try_from(array.len()).unwrap_or(i32::MAX));
            array.iter().for_each(|object| writer.object(object));
        }
    }
    writer.out
}

struct Writer {
    out: Vec<u8>,
    /// The numbers of the classes that have been described.
    classes: Vec<(&'static str, u32)>,
    next: u32,
}

impl Writer {
    fn int(&mut self, value: i32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    fn short_text(&mut self, text: &str) {
        let bytes = modified_utf8(text);
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        self.out.extend_from_slice(&length.to_be_bytes());
        self.out.extend_from_slice(&bytes);
    }

    fn class(&mut self, class: &'static Class) {
        if let Some((_, handle)) = self.classes.iter().find(|(name, _)| *name == class.name) {
            self.out.push(REFERENCE);
            self.out.extend_from_slice(&handle.to_be_bytes());
            return;
        }
        self.out.push(CLASS);
        self.short_text(class.name);
        self.out.extend_from_slice(&class.version.to_be_bytes());
        self.classes.push((class.name, self.next));
        self.next += 1;
        self.out.push(class.flags);
        self.out
            .extend_from_slice(&u16::try_from(class.fields.len()).unwrap_or(0).to_be_bytes());
        for (kind, name, type_name) in class.fields {
            self.out.push(*kind);
            self.short_text(name);
            if !type_name.is_empty() {
                self.out.push(STRING);
                self.short_text(type_name);
                self.next += 1;
            }
        }
        self.out.push(END_BLOCK);
        match class.parent {
            Some(parent) => self.class(parent),
            None => self.out.push(NULL),
        }
    }

    /// The beginning of an object, before its fields.
    fn begin(&mut self, class: &'static Class) {
        self.out.push(OBJECT);
        self.class(class);
        self.next += 1;
    }

    fn object(&mut self, object: &Object) {
        match object {
            Object::Null => self.out.push(NULL),
            Object::Boolean(value) => self.boxed(&BOOLEAN, &[u8::from(*value)]),
            Object::Short(value) => self.boxed(&SHORT, &value.to_be_bytes()),
            Object::Integer(value) => self.boxed(&INTEGER, &value.to_be_bytes()),
            Object::Long(value) => self.boxed(&LONG, &value.to_be_bytes()),
            Object::Float(value) => self.boxed(&FLOAT, &value.to_be_bytes()),
            Object::Double(value) => self.boxed(&DOUBLE, &value.to_be_bytes()),
            Object::Text(text) => self.text(text),
            Object::Uuid(value) => {
                let bytes = value.to_be_bytes();
                self.begin(&UUID);
                self.out.extend_from_slice(&bytes[8..]);
                self.out.extend_from_slice(&bytes[..8]);
            }
            Object::Decimal(decimal) => self.decimal(decimal),
        }
    }

    fn boxed(&mut self, class: &'static Class, value: &[u8]) {
        self.begin(class);
        self.out.extend_from_slice(value);
    }

    fn text(&mut self, text: &str) {
        let bytes = modified_utf8(text);
        match u16::try_from(bytes.len()) {
            Ok(length) => {
                self.out.push(STRING);
                self.out.extend_from_slice(&length.to_be_bytes());
            }
            Err(_) => {
                self.out.push(LONG_STRING);
                self.out.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
            }
        }
        self.out.extend_from_slice(&bytes);
        self.next += 1;
    }

    fn decimal(&mut self, decimal: &Decimal) {
        self.begin(&DECIMAL);
        self.int(decimal.scale());
        self.begin(&INTEGER_OF_ANY_SIZE);
        let (sign, mut magnitude) = decimal.unscaled().to_bytes_be();
        if sign == Sign::NoSign {
            magnitude.clear();
        }
        // What the first four hold is worked out anew when it is read.
        [-1, -1, -2, -2].into_iter().for_each(|unknown| self.int(unknown));
        self.int(match sign {
            Sign::Minus => -1,
            Sign::NoSign => 0,
            Sign::Plus => 1,
        });
        self.out.push(ARRAY);
        self.class(&BYTES);
        self.next += 1;
        self.int(i32::try_from(magnitude.len()).unwrap_or(i32::MAX));
        self.out.extend_from_slice(&magnitude);
        self.out.extend_from_slice(&[END_BLOCK, END_BLOCK]);
    }
}

/// Text as Java writes it: UTF-16 units in the form that UTF-8 has for them, and two bytes for the unit 0.
fn modified_utf8(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for unit in text.encode_utf16() {
        match unit {
            1..=0x7F => out.push(unit as u8),
            0 | 0x80..=0x7FF => out.extend_from_slice(&[0xC0 | (unit >> 6) as u8, 0x80 | (unit & 0x3F) as u8]),
            _ => out.extend_from_slice(&[
                0xE0 | (unit >> 12) as u8,
                0x80 | (unit >> 6 & 0x3F) as u8,
                0x80 | (unit & 0x3F) as u8,
            ]),
        }
    }
    out
}

fn from_modified_utf8(bytes: &[u8]) -> Option<String> {
    let mut units = Vec::with_capacity(bytes.len());
    let mut unread = bytes.iter();
    let follows = |unread: &mut std::slice::Iter<'_, u8>| {
        unread
            .next()
            .filter(|byte| **byte & 0xC0 == 0x80)
            .map(|byte| u16::from(byte & 0x3F))
    };
    while let Some(&first) = unread.next() {
        let first = u16::from(first);
        units.push(match first >> 4 {
            0..=7 => first,
            12 | 13 => (first & 0x1F) << 6 | follows(&mut unread)?,
            14 => (first & 0x0F) << 12 | follows(&mut unread)? << 6 | follows(&mut unread)?,
            _ => return None,
        });
    }
    String::from_utf16(&units).ok()
}

/// Reads what `ObjectOutputStream.writeObject` has made of an `Object[]`, or of `null`.
///
/// # Errors
/// What is read is no such array, or it holds objects of other classes.
pub fn read(bytes: &[u8]) -> Result<Option<Vec<Object>>, SerialError> {
    let unread = bytes
        .strip_prefix(&MAGIC)
        .ok_or(SerialError::Malformed("it does not begin as a stream of objects"))?;
    let mut reader = Reader {
        unread,
        seen: Vec::new(),
        depth: 0,
    };
    match reader.content()? {
        Found::Null => Ok(None),
        Found::Array(objects) => objects
            .into_iter()
            .map(Found::into_object)
            .collect::<Result<_, _>>()
            .map(Some),
        _ => Err(SerialError::Malformed("it is no array")),
    }
}

/// What the reader has found.
#[derive(Debug, Clone)]
enum Found {
    Null,
    Text(String),
    Class(std::rc::Rc<Described>),
    Array(Vec<Found>),
    Bytes(Vec<u8>),
    Number(BigInt),
    Object(Object),
}

/// A class that the stream has described.
#[derive(Debug)]
struct Described {
    name: String,
    flags: u8,
    fields: Vec<(u8, String)>,
    parent: Option<std::rc::Rc<Self>>,
}

/// The value of a field.
enum Field {
    Bits(u64),
    Found(Found),
}

impl Found {
    fn into_object(self) -> Result<Object, SerialError> {
        match self {
            Self::Null => Ok(Object::Null),
            Self::Text(text) => Ok(Object::Text(text)),
            Self::Object(object) => Ok(object),
            Self::Number(_) => Err(SerialError::Class("java.math.BigInteger".into())),
            Self::Bytes(_) => Err(SerialError::Class("byte[]".into())),
            Self::Array(_) => Err(SerialError::Class("java.lang.Object[]".into())),
            Self::Class(_) => Err(SerialError::Class("java.lang.Class".into())),
        }
    }
}

struct Reader<'b> {
    unread: &'b [u8],
    seen: Vec<Found>,
    depth: u32,
}

impl Reader<'_> {
    fn take(&mut self, length: usize) -> Result<&[u8], SerialError> {
        let (taken, unread) = self
            .unread
            .split_at_checked(length)
            .ok_or(SerialError::Malformed("it is cut off"))?;
        self.unread = unread;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<u64, SerialError> {
        let bytes = self.take(N)?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn text<const N: usize>(&mut self) -> Result<String, SerialError> {
        let length = usize::try_from(self.number::<N>()?).unwrap_or(usize::MAX);
        from_modified_utf8(self.take(length)?).ok_or(SerialError::Malformed("a text is malformed"))
    }

    fn keep(&mut self, found: Found) -> usize {
        self.seen.push(found);
        self.seen.len() - 1
    }

    fn content(&mut self) -> Result<Found, SerialError> {
        const DEEPEST: u32 = 16;
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(SerialError::Malformed("objects lie too deep within each other"));
        }
        let found = match self.number::<1>()? as u8 {
            NULL => Found::Null,
            REFERENCE => {
                let handle = (self.number::<4>()? as u32).wrapping_sub(FIRST_HANDLE) as usize;
                let seen = self.seen.get(handle);
                seen.cloned()
                    .ok_or(SerialError::Malformed("a reference leads nowhere"))?
            }
            CLASS => self.class()?,
            STRING => self.kept_text::<2>()?,
            LONG_STRING => self.kept_text::<8>()?,
            ARRAY => self.array()?,
            OBJECT => self.object()?,
            _ => return Err(SerialError::Malformed("it holds something else than objects")),
        };
        self.depth -= 1;
        Ok(found)
    }

    fn kept_text<const N: usize>(&mut self) -> Result<Found, SerialError> {
        let text = Found::Text(self.text::<N>()?);
        self.keep(text.clone());
        Ok(text)
    }

    fn class(&mut self) -> Result<Found, SerialError> {
        let name = self.text::<2>()?;
        self.number::<8>()?;
        let place = self.keep(Found::Null);
        let flags = self.number::<1>()? as u8;
        let mut fields = Vec::new();
        for _ in 0..self.number::<2>()? {
            let kind = self.number::<1>()? as u8;
            let field = self.text::<2>()?;
            if matches!(kind, b'L' | b'[') {
                self.content()?;
            }
            fields.push((kind, field));
        }
        self.skip_block()?;
        let parent = match self.content()? {
            Found::Null => None,
            Found::Class(parent) => Some(parent),
            _ => return Err(SerialError::Malformed("a class has no class above it")),
        };
        let class = Found::Class(
            Described {
                name,
                flags,
                fields,
                parent,
            }
            .into(),
        );
        self.seen[place] = class.clone();
        Ok(class)
    }

    /// What a class has written beside its fields.
    fn skip_block(&mut self) -> Result<(), SerialError> {
        loop {
            match self.unread.first() {
                Some(&END_BLOCK) => {
                    self.take(1)?;
                    return Ok(());
                }
                Some(&BLOCK) => {
                    self.take(1)?;
                    let length = self.number::<1>()? as usize;
                    self.take(length)?;
                }
                _ => drop(self.content()?),
            }
        }
    }

    fn described(&mut self) -> Result<std::rc::Rc<Described>, SerialError> {
        match self.content()? {
            Found::Class(class) => Ok(class),
            _ => Err(SerialError::Malformed("an object has no class")),
        }
    }

    fn array(&mut self) -> Result<Found, SerialError> {
        let class = self.described()?;
        let place = self.keep(Found::Null);
        let length = self.number::<4>()? as usize;
        let array = if class.name == BYTES.name {
            Found::Bytes(self.take(length)?.to_vec())
        } else if class.name.starts_with("[L") {
            let mut objects = Vec::new();
            for _ in 0..length {
                objects.push(self.content()?);
            }
            Found::Array(objects)
        } else {
            return Err(SerialError::Class(class.name.clone()));
        };
        self.seen[place] = array.clone();
        Ok(array)
    }

    fn object(&mut self) -> Result<Found, SerialError> {
        let class = self.described()?;
        let place = self.keep(Found::Null);
        let mut classes = vec![class.clone()];
        while let Some(parent) = classes.last().and_then(|class| class.parent.clone()) {
            classes.push(parent);
        }
        let mut values = Vec::new();
        for class in classes.iter().rev() {
            for (kind, name) in &class.fields {
                let value = match kind {
                    b'B' | b'Z' => Field::Bits(self.number::<1>()?),
                    b'S' | b'C' => Field::Bits(self.number::<2>()?),
                    b'I' | b'F' => Field::Bits(self.number::<4>()?),
                    b'J' | b'D' => Field::Bits(self.number::<8>()?),
                    b'L' | b'[' => Field::Found(self.content()?),
                    _ => return Err(SerialError::Malformed("a field has no type")),
                };
                values.push((name.clone(), value));
            }
            if class.flags & WRITES_MORE != 0 {
                self.skip_block()?;
            }
        }
        let object = made(&class.name, &values).ok_or_else(|| SerialError::Class(class.name.clone()))?;
        self.seen[place] = object.clone();
        Ok(object)
    }
}

/// An object of a class with these fields; `None` for a class that is not known.
fn made(class: &str, values: &[(String, Field)]) -> Option<Found> {
    let bits = |name: &str| {
        values.iter().find_map(|(field, value)| match value {
            Field::Bits(bits) if field == name => Some(*bits),
            _ => None,
        })
    };
    let found = |name: &str| {
        values.iter().find_map(|(field, value)| match value {
            Field::Found(found) if field == name => Some(found.clone()),
            _ => None,
        })
    };
    let value = || bits("value");
    let object = match class {
        "java.lang.Boolean" => Object::Boolean(value()? != 0),
        "java.lang.Short" => Object::Short(value()? as u16 as i16),
        "java.lang.Integer" => Object::Integer(value()? as u32 as i32),
        "java.lang.Long" => Object::Long(value()? as i64),
        "java.lang.Float" => Object::Float(f32::from_bits(value()? as u32)),
        "java.lang.Double" => Object::Double(f64::from_bits(value()?)),
        "java.util.UUID" => Object::Uuid(u128::from(bits("mostSigBits")?) << 64 | u128::from(bits("leastSigBits")?)),
        "java.math.BigDecimal" => match found("intVal")? {
            Found::Number(unscaled) => Object::Decimal(Decimal::big(unscaled, bits("scale")? as u32 as i32)),
            _ => return None,
        },
        "java.math.BigInteger" => {
            let Found::Bytes(magnitude) = found("magnitude")? else {
                return None;
            };
            let sign = match bits("signum")? as u32 as i32 {
                0 => Sign::NoSign,
                sign if sign < 0 => Sign::Minus,
                _ => Sign::Plus,
            };
            return Some(Found::Number(BigInt::from_bytes_be(sign, &magnitude)));
        }
        _ => return None,
    };
    Some(Found::Object(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    fn text(text: &str) -> Object {
        Object::Text(text.to_owned())
    }

    fn decimal(text: &str) -> Object {
        Object::Decimal(Decimal::parse(text).unwrap())
    }

    /// Written by a Java 25: `ObjectOutputStream.writeObject(new Object[]{…})`.
    #[test]
    fn arrays_are_written_and_read_as_java_does() {
        let uuid = 0xa0ee_bc99_9c0b_4ef8_bb6d_6bb9_bd38_0a11;
        let cases: Vec<(&str, Option<Vec<Object>>)> = vec![
            ("aced000570", None),
            (VECTORS[0], Some(vec![Object::Integer(1000)])),
            (VECTORS[1], Some(vec![Object::Integer(-1), Object::Integer(i32::MAX)])),
            (
                VECTORS[2],
                Some(vec![
                    Object::Long(5),
                    text("zażółć\0😀"),
                    Object::Integer(7),
                    Object::Long(8),
                    Object::Null,
                ]),
            ),
            (VECTORS[3], Some(vec![Object::Uuid(uuid)])),
            (
                VECTORS[4],
                Some(
                    ["12.50", "-0.001", "123456789012345678901234567890.5", "0"]
                        .map(decimal)
                        .to_vec(),
                ),
            ),
            (
                VECTORS[5],
                Some(vec![
                    Object::Boolean(true),
                    Object::Double(1.5),
                    Object::Short(3),
                    Object::Float(2.5),
                ]),
            ),
        ];
        for (hex, objects) in cases {
            assert_eq!(read(&bytes(hex)).as_ref(), Ok(&objects), "{hex}");
            assert_eq!(write(objects.as_deref()), bytes(hex), "{objects:?}");
        }
    }

    /// Java writes a text that is the same object a second time as a reference.
    #[test]
    fn references_are_followed() {
        let objects = vec![text("twice"), text("twice"), text("other")];
        assert_eq!(read(&bytes(VECTORS[6])), Ok(Some(objects)));
    }

    #[test]
    fn what_is_cut_off_or_unknown_is_an_error_and_never_a_panic() {
        for vector in VECTORS {
            let whole = bytes(vector);
            for length in 0..whole.len() {
                assert!(read(&whole[..length]).is_err(), "{length} bytes of {vector}");
            }
            for at in 0..whole.len() {
                let mut changed = whole.clone();
                changed[at] ^= 0x55;
                let _ = read(&changed);
            }
        }
        let date = "aced0005757200135b4c6a6176612e6c616e672e4f626a6563743b90ce589f1073296c0200007870000000017372000e6a617661\
                    2e7574696c2e44617465686a81014b59741903000078707708000000000000000078";
        assert_eq!(
            read(&bytes(&date.replace(' ', ""))),
            Err(SerialError::Class("java.util.Date".into()))
        );
    }

    const VECTORS: &[&str] = &[
        "aced0005757200135b4c6a6176612e6c616e672e4f626a6563743b90ce589f1073296c020000787000000001737200116a6176612e6c616e672e496e746567657212e2a0a4f781873802000149000576616c7565787200106a6176612e6c616e672e4e756d62657286ac951d0b94e08b0200007870000003e8",
        "aced0005757200135b4c6a6176612e6c616e672e4f626a6563743b90ce589f1073296c020000787000000002737200116a6176612e6c616e672e496e746567657212e2a0a4f781873802000149000576616c7565787200106a6176612e6c616e672e4e756d62657286ac951d0b94e08b0200007870ffffffff7371007e00027fffffff",
        "aced0005757200135b4c6a6176612e6c616e672e4f626a6563743b90ce589f1073296c0200007870000000057372000e6a6176612e6c616e672e4c6f6e673b8be490cc8f23df0200014a000576616c7565787200106a6176612e6c616e672e4e756d62657286ac951d0b94e08b020000787000000000000000057400127a61c5bcc3b3c582c487c080eda0bdedb880737200116a6176612e6c616e672e496e746567657212e2a0a4f781873802000149000576616c75657871007e0003000000077371007e0002000000000000000870",
        "aced0005757200135b4c6a6176612e6c616e672e4f626a6563743b90ce589f1073296c0200007870000000017372000e6a6176612e7574696c2e55554944bc9903f7986d852f0200024a000c6c65617374536967426974734a000b6d6f7374536967426974737870bb6d6bb9bd380a11a0eebc999c0b4ef8",
        "aced0005757200135b4c6a6176612e6c616e672e4f626a6563743b90ce589f1073296c020000787000000004737200146a6176612e6d6174682e426967446563696d616c54c71557f981284f0300024900057363616c654c0006696e7456616c7400164c6a6176612f6d6174682f426967496e74656765723b787200106a6176612e6c616e672e4e756d62657286ac951d0b94e08b020000787000000002737200146a6176612e6d6174682e426967496e74656765728cfc9f1fa93bfb1d030006490008626974436f756e744900096269744c656e67746849001366697273744e6f6e7a65726f427974654e756d49000c6c6f776573745365744269744900067369676e756d5b00096d61676e69747564657400025b427871007e0004fffffffffffffffffffffffefffffffe00000001757200025b42acf317f8060854e002000078700000000204e278787371007e0002000000037371007e0006fffffffffffffffffffffffefffffffeffffffff7571007e0009000000010178787371007e0002000000017371007e0006fffffffffffffffffffffffefffffffe000000017571007e00090000000d0f951a9fa3a286c94f0e766c3978787371007e0002000000007371007e0006fffffffffffffffffffffffefffffffe000000007571007e0009000000007878",
        "aced0005757200135b4c6a6176612e6c616e672e4f626a6563743b90ce589f1073296c020000787000000004737200116a6176612e6c616e672e426f6f6c65616ecd207280d59cfaee0200015a000576616c7565787001737200106a6176612e6c616e672e446f75626c6580b3c24a296bfb0402000144000576616c7565787200106a6176612e6c616e672e4e756d62657286ac951d0b94e08b02000078703ff80000000000007372000f6a6176612e6c616e672e53686f7274684d37133460da5202000153000576616c75657871007e000500037372000f6a6176612e6c616e672e466c6f6174daedc9a2db3cf0ec02000146000576616c75657871007e000540200000",
        "aced0005757200135b4c6a6176612e6c616e672e4f626a6563743b90ce589f1073296c020000787000000003740005747769636571007e00027400056f74686572",
    ];
}
