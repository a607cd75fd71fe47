//! Picks the role, builds the parts, runs them: the only composition root.

fn main() {}
