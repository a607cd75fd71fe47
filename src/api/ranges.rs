//! Lists of what a client takes, as `accept` and `accept-encoding` have them (pure).

use http::{HeaderMap, HeaderName};

/// What a client takes, in the order in which it says so: in lower case, without parameters, and without what it
/// refuses by `q=0`.
pub(super) fn taken<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = String> + 'a {
    let values = headers.get_all(name).into_iter();
    let ranges = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    ranges.filter(|range| !is_refused(range)).map(essence)
}

/// A value without its parameters.
pub(super) fn essence(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether a range says `q=0`: anything but this.
fn is_refused(range: &[u8]) -> bool {
    String::from_utf8_lossy(range)
        .split(';')
        .skip(1)
        .filter_map(|parameter| parameter.trim().strip_prefix("q="))
        .any(|quality| quality.parse::<f32>() == Ok(0.0))
}
