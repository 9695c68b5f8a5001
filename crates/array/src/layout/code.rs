//! The code of a row, solved.
