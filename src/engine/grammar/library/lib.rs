//! llguidance as a static library: its C interface, declared in ../llguidance.h, and nothing else.
pub use llguidance::ffi::*;
