#pragma once
// Ctrl-C within the library's long work.

namespace vitrine::python {

/// Lets Python handle its signals, at most every 50 ms in a thread; with or without the interpreter's lock. Throws what a handler
/// raises: KeyboardInterrupt.
void check_signals();

}  // namespace vitrine::python
