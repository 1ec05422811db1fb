//! Has tests only: see `tests/`.
