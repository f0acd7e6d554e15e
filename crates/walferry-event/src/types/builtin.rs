//! The built-in types of Postgres, by their fixed ids (`pg_type.dat`).

use walferry_pgoutput::Oid;

macro_rules! builtins {
    ($($name:ident = $oid:literal, $pg_name:literal $(, [$element:ident])?;)*) => {
        /// Ids of types.
        #[allow(missing_docs)]
        pub(crate) mod oid {
            use walferry_pgoutput::Oid;
            $(pub(crate) const $name: Oid = Oid($oid);)*
        }

        /// Name of a type and, for an array, the type of its elements.
        pub(crate) fn builtin(id: Oid) -> Option<(&'static str, Option<Oid>)> {
            match id {
                $(oid::$name => Some(($pg_name, element!($($element)?))),)*
                _ => None,
            }
        }
    };
}

macro_rules! element {
    () => {
        None
    };
    ($element:ident) => {
        Some(oid::$element)
    };
}

builtins! {
    BOOL = 16, "bool";
    BYTEA = 17, "bytea";
    CHAR = 18, "char";
    NAME = 19, "name";
    INT8 = 20, "int8";
    INT2 = 21, "int2";
    INT2VECTOR = 22, "int2vector";
    INT4 = 23, "int4";
    TEXT = 25, "text";
    OID = 26, "oid";
    OIDVECTOR = 30, "oidvector";
    JSON = 114, "json";
    XML = 142, "xml";
    POINT = 600, "point";
    LSEG = 601, "lseg";
    PATH = 602, "path";
    BOX = 603, "box";
    POLYGON = 604, "polygon";
    LINE = 628, "line";
    CIDR = 650, "cidr";
    FLOAT4 = 700, "float4";
    FLOAT8 = 701, "float8";
    CIRCLE = 718, "circle";
    MACADDR8 = 774, "macaddr8";
    MONEY = 790, "money";
    MACADDR = 829, "macaddr";
    INET = 869, "inet";
    BPCHAR = 1042, "bpchar";
    VARCHAR = 1043, "varchar";
    DATE = 1082, "date";
    TIME = 1083, "time";
    TIMESTAMP = 1114, "timestamp";
    TIMESTAMPTZ = 1184, "timestamptz";
    INTERVAL = 1186, "interval";
    TIMETZ = 1266, "timetz";
    BIT = 1560, "bit";
    VARBIT = 1562, "varbit";
    NUMERIC = 1700, "numeric";
    REFCURSOR = 1790, "refcursor";
    UUID = 2950, "uuid";
    TSVECTOR = 3614, "tsvector";
    JSONB = 3802, "jsonb";
    INT4RANGE = 3904, "int4range";
    NUMRANGE = 3906, "numrange";
    TSRANGE = 3908, "tsrange";
    TSTZRANGE = 3910, "tstzrange";
    DATERANGE = 3912, "daterange";
    INT8RANGE = 3926, "int8range";
    BOOL_ARRAY = 1000, "_bool", [BOOL];
    BYTEA_ARRAY = 1001, "_bytea", [BYTEA];
    CHAR_ARRAY = 1002, "_char", [CHAR];
    NAME_ARRAY = 1003, "_name", [NAME];
    INT2_ARRAY = 1005, "_int2", [INT2];
    INT4_ARRAY = 1007, "_int4", [INT4];
    TEXT_ARRAY = 1009, "_text", [TEXT];
    BPCHAR_ARRAY = 1014, "_bpchar", [BPCHAR];
    VARCHAR_ARRAY = 1015, "_varchar", [VARCHAR];
    INT8_ARRAY = 1016, "_int8", [INT8];
    POINT_ARRAY = 1017, "_point", [POINT];
    FLOAT4_ARRAY = 1021, "_float4", [FLOAT4];
    FLOAT8_ARRAY = 1022, "_float8", [FLOAT8];
    OID_ARRAY = 1028, "_oid", [OID];
    MACADDR_ARRAY = 1040, "_macaddr", [MACADDR];
    INET_ARRAY = 1041, "_inet", [INET];
    TIMESTAMP_ARRAY = 1115, "_timestamp", [TIMESTAMP];
    DATE_ARRAY = 1182, "_date", [DATE];
    TIME_ARRAY = 1183, "_time", [TIME];
    TIMESTAMPTZ_ARRAY = 1185, "_timestamptz", [TIMESTAMPTZ];
    INTERVAL_ARRAY = 1187, "_interval", [INTERVAL];
    NUMERIC_ARRAY = 1231, "_numeric", [NUMERIC];
    TIMETZ_ARRAY = 1270, "_timetz", [TIMETZ];
    BIT_ARRAY = 1561, "_bit", [BIT];
    VARBIT_ARRAY = 1563, "_varbit", [VARBIT];
    XML_ARRAY = 143, "_xml", [XML];
    JSON_ARRAY = 199, "_json", [JSON];
    CIDR_ARRAY = 651, "_cidr", [CIDR];
    MACADDR8_ARRAY = 775, "_macaddr8", [MACADDR8];
    MONEY_ARRAY = 791, "_money", [MONEY];
    REFCURSOR_ARRAY = 2201, "_refcursor", [REFCURSOR];
    UUID_ARRAY = 2951, "_uuid", [UUID];
    JSONB_ARRAY = 3807, "_jsonb", [JSONB];
    INT4RANGE_ARRAY = 3905, "_int4range", [INT4RANGE];
    NUMRANGE_ARRAY = 3907, "_numrange", [NUMRANGE];
    TSRANGE_ARRAY = 3909, "_tsrange", [TSRANGE];
    TSTZRANGE_ARRAY = 3911, "_tstzrange", [TSTZRANGE];
    DATERANGE_ARRAY = 3913, "_daterange", [DATERANGE];
    INT8RANGE_ARRAY = 3927, "_int8range", [INT8RANGE];
}

/// The length that the driver reports for a type without a length.
pub(crate) const UNKNOWN_LENGTH: i32 = i32::MAX;
/// Length that the driver reports for `numeric` without precision.
pub(crate) const VARIABLE_NUMERIC_LENGTH: i32 = 131_089;

/// `COLUMN_SIZE` as the driver reports it for a type and its modifier: a precision, or a number of characters or bits.
pub(crate) fn length(id: Oid, modifier: i32) -> i32 {
    match scalar(id) {
        oid::INT2 => 5,
        oid::OID | oid::INT4 => 10,
        oid::INT8 => 19,
        oid::FLOAT4 => 8,
        oid::FLOAT8 => 17,
        oid::NUMERIC if modifier == -1 => 0,
        oid::NUMERIC => modifier.wrapping_sub(4) >> 16,
        oid::CHAR | oid::BOOL => 1,
        oid::BPCHAR | oid::VARCHAR if modifier != -1 => modifier.wrapping_sub(4),
        oid::DATE => 13,
        oid::TIME => fraction(modifier).wrapping_add(8),
        oid::TIMETZ => fraction(modifier).wrapping_add(14),
        oid::TIMESTAMP => fraction(modifier).wrapping_add(22),
        oid::TIMESTAMPTZ => fraction(modifier).wrapping_add(28),
        oid::INTERVAL => 49,
        oid::BIT | oid::VARBIT if modifier != -1 => modifier,
        _ => UNKNOWN_LENGTH,
    }
}

/// `DECIMAL_DIGITS` as the driver reports it.
pub(crate) fn scale(id: Oid, modifier: i32) -> i32 {
    match scalar(id) {
        oid::FLOAT4 => 8,
        oid::FLOAT8 => 17,
        oid::NUMERIC if modifier == -1 => 0,
        oid::NUMERIC => modifier.wrapping_sub(4) & 0xFFFF,
        oid::TIME | oid::TIMETZ | oid::TIMESTAMP | oid::TIMESTAMPTZ if modifier == -1 => 6,
        oid::TIME | oid::TIMETZ | oid::TIMESTAMP | oid::TIMESTAMPTZ => modifier,
        oid::INTERVAL if modifier == -1 => 6,
        oid::INTERVAL => modifier & 0xFFFF,
        _ => 0,
    }
}

fn scalar(id: Oid) -> Oid {
    builtin(id).and_then(|(_, element)| element).unwrap_or(id)
}

/// Number of characters in the fraction of a second, including the point.
fn fraction(modifier: i32) -> i32 {
    match modifier {
        -1 => 7,
        0 => 0,
        1 => 3, // the driver's own arithmetic: never fewer than two digits
        digits => digits.wrapping_add(1),
    }
}
