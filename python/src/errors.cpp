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

// A FileError's message begins with the file's path, which may have a line behind it: "recipe.yaml:7".
bool names_missing_file(std::string_view message) {
  const size_t end = message.find(": ");
  if (end == std::string_view::npos) return false;
  const std::string_view named = message.substr(0, end);
  std::string_view path = named;
  while (!path.empty() && path.back() >= '0' && path.back() <= '9') path.remove_suffix(1);
  if (path.ends_with(':') && path.size() < named.size())
    path.remove_suffix(1);
  else
    path = named;
  std::error_code error;
  return !std::filesystem::exists(std::filesystem::path(named), error) &&
         !std::filesystem::exists(std::filesystem::path(path), error);
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
