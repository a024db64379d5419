//! Converts texts from C and for C.

use std::ffi::{CStr, c_char};
use steadycast_control::registry::Registry;
use steadycast_remote::Given;

/// Reads a text from C. Returns `None` if `text` is null.
///
/// # Errors
/// The text is not UTF-8.
///
/// # Safety
/// `text` is null, or is terminated by a NUL. It does not change while the returned text is used.
pub(crate) unsafe fn read<'a>(text: *const c_char) -> Result<Option<&'a str>, String> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees the conditions in the `# Safety` section above.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| "a text is not UTF-8; give one that is".into())
}

/// Writes a text for C, terminated by a NUL. A text that does not fit into `room` bytes with its NUL is truncated at a
/// character boundary.
///
/// # Safety
/// `to` is null, or has `room` bytes.
pub(crate) unsafe fn write(text: &str, to: *mut c_char, room: usize) {
    if to.is_null() || room == 0 {
        return;
    }
    let end = (0..=text.len().min(room - 1)).rfind(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let cut = &text[..end];
    // SAFETY: `to` has `room` bytes, as the caller guarantees. The text and its NUL fit into them.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(cut.as_ptr(), cut.len());
        to.add(cut.len()).write(0);
    }
}

/// Parses a controller's parameters from a JSON object. Returns the name and the value of each parameter.
///
/// # Errors
/// `json` is not a JSON object, or a value is null, a list or an object.
pub(crate) fn params(json: &str) -> Result<Vec<(String, Given)>, String> {
    use serde_json::Value;
    let remedy = "give a JSON object, for example {\"probes\": false}";
    let all: serde_json::Map<String, Value> =
        serde_json::from_str(json).map_err(|problem| format!("params: {problem}; {remedy}"))?;
    let given = |(name, value): (String, Value)| {
        let value = match value {
            Value::Bool(switch) => Given::Switch(switch),
            Value::Number(number) => Given::Number(number.as_f64().unwrap_or(f64::NAN)),
            Value::String(text) => Given::Text(text),
            Value::Null | Value::Array(_) | Value::Object(_) => {
                return Err(format!("params.{name}: {value} is no value; give a number, a text, true or false"));
            }
        };
        Ok((name, value))
    };
    all.into_iter().map(given).collect()
}

pub(crate) fn names() -> String {
    Registry::default().names(|_| true).join("\n")
}
