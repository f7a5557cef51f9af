#pragma once

namespace vitrine::python {

/// From now on vitrine's exceptions arrive in Python as those of vitrine/errors.py, with the same message.
void register_errors();

}  // namespace vitrine::python
