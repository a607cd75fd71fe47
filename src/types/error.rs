//! Errors as people read them.

use std::error::Error;

/// An error and what lies under it, on one line.
#[must_use]
pub fn describe(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut under = error.source();
    while let Some(source) = under {
        line.push_str(": ");
        line.push_str(&source.to_string());
        under = source.source();
    }
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the upper\n  half")]
    struct Upper(#[source] std::fmt::Error);

    #[test]
    fn a_chain_of_errors_is_one_line() {
        let under = std::fmt::Error.to_string();
        assert_eq!(describe(&Upper(std::fmt::Error)), format!("the upper half: {under}"));
    }
}
