#include "signals.h"

#include <nanobind/nanobind.h>

#include <chrono>

namespace vitrine::python {

void check_signals() {
  using namespace std::chrono_literals;
  thread_local auto checked = std::chrono::steady_clock::now();
  const auto now = std::chrono::steady_clock::now();
  if (now - checked < 50ms) return;
  checked = now;
  const nanobind::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

}  // namespace vitrine::python
