//! Parts of texts and lists, as Groovy's brackets ask for them.

use super::number::Number;
use super::object::Object;
use super::range::Range;

type Answer<'r> = Result<Object<'r>, String>;

/// A place from the beginning, or from the end where it is negative.
fn counted(place: i64, length: usize) -> Option<usize> {
    match usize::try_from(place) {
        Ok(place) => Some(place),
        Err(_) => length.checked_sub(usize::try_from(place.unsigned_abs()).ok()?),
    }
}

const SHORTER: &str = "the text is shorter";
const BEFORE: &str = "an element is asked for that stands before the first one";

/// Groovy's `text[place]`, `text[from..to]` and `text[place, place]`.
pub(super) fn part_of_text<'r>(text: &str, index: &Object<'_>) -> Answer<'r> {
    let units: Vec<u16> = text.encode_utf16().collect();
    let unit = |index: &Object<'_>| match index {
        Object::Number(number @ (Number::Int(_) | Number::Short(_) | Number::Byte(_))) => {
            let unit = counted(number.long(), units.len()).and_then(|place| units.get(place).copied());
            unit.ok_or_else(|| SHORTER.to_owned())
        }
        other => Err(format!("a text has no character at {}", other.kind())),
    };
    let part = match index {
        Object::Range(range) => part(&units, range).ok_or(SHORTER)?,
        Object::List(places) => places.iter().map(unit).collect::<Result<_, _>>()?,
        place => vec![unit(place)?],
    };
    Ok(Object::text(String::from_utf16_lossy(&part)))
}

fn part<T: Clone>(of: &[T], range: &Range) -> Option<Vec<T>> {
    let (begin, end, is_reversed) = range.part(of.len())?;
    let mut part = of.get(begin..end)?.to_vec();
    if is_reversed {
        part.reverse();
    }
    Some(part)
}

/// Groovy's `list[place]`, `list[from..to]` and `list[place, place]`. Behind the end of a list is null, and behind that of an array
/// nothing.
pub(super) fn part_of_list<'r>(of: &Object<'r>, index: &Object<'_>) -> Answer<'r> {
    let elements = match of {
        Object::Range(range) => {
            if let Object::Number(number) = index {
                let place = counted(number.long(), range.length()).ok_or(BEFORE)?;
                return Ok(range.element(place).map_or(Object::Null, Object::from));
            }
            Object::all_of(range)?.into()
        }
        of => of.elements().unwrap_or_default(),
    };
    let element = |index: &Object<'_>| match index {
        Object::Number(number) => {
            let place = counted(number.long(), elements.len()).ok_or(BEFORE)?;
            match (elements.get(place), of) {
                (Some(element), _) => Ok(element.clone()),
                (None, Object::Array(_)) => Err("the array is shorter".to_owned()),
                (None, _) => Ok(Object::Null),
            }
        }
        other => Err(format!("a list has no element at {}", other.kind())),
    };
    match index {
        Object::Range(range) => Ok(Object::List(part(&elements, range).ok_or("the list is shorter")?)),
        Object::List(places) => Ok(Object::List(places.iter().map(element).collect::<Result<_, _>>()?)),
        place => element(place),
    }
}
