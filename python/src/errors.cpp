#include "errors.h"

#include <filesystem>

#include "arrays.h"
#include "base/error.h"

namespace vitrine::python {
namespace {

void raise(const char* type, const char* message) {
  const nb::object error = nb::module_::import_("vitrine.errors").attr(type);
  PyErr_SetObject(error.ptr(), text(message).ptr());
}

// A FileError's message begins with the file's path.
bool names_missing_file(std::string_view message) {
  const size_t end = message.find(": ");
  std::error_code error;
  return end != std::string_view::npos && !std::filesystem::exists(std::filesystem::path(message.substr(0, end)), error);
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const FileError& e) {
    raise(names_missing_file(e.what()) ? "MissingFileError" : "FileError", e.what());
  } catch (const ShapeError& e) {
    raise("ShapeError", e.what());
  } catch (const UsageError& e) {
    raise("UsageError", e.what());
  } catch (const InputError& e) {
    raise("InputError", e.what());
  } catch (const RunError& e) {
    raise("RunError", e.what());
  } catch (const Error& e) {
    raise("Error", e.what());
  }
}

}  // namespace

void register_errors() { nb::register_exception_translator(&translate); }

}  // namespace vitrine::python
