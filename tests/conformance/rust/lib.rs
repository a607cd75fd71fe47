//! Empty: the package exists for its lock file.
