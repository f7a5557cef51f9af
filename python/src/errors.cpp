#include "errors.h"

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "arrays.h"
#include "base/error.h"

namespace vitrine::python {
namespace {

// What messages call by the command line's names, and what it is called here. The longer of two that begin alike comes first.
constexpr std::array<std::pair<std::string_view, std::string_view>, 17> kCalls = {{
    {"`vitrine info --hooks` lists every name", "hook_names lists every one"},
    {"`vitrine verify` or a trace of that hook shows more", "run_with_cache(…, allow_nan=True) shows more"},
    {"`vitrine verify` shows more", "run_with_cache(…, allow_nan=True) shows more"},
    {"`vitrine tokenize` shows", "to_str_tokens shows"},
    {"a trace holds a hook once. Ask for the larger slice, or trace twice",
     "a cache holds a hook once. Ask for the larger slice, or run twice"},
    {"end tokens (--eos)", "end tokens (eos=)"},
    {"--dry-run lists", "merge_plan lists"},
    {"without --resume", "without resume"},
    {"by --resume", "by resume=True"},
    {"with --resume", "with resume=True"},
    {"use --allow-nan", "use allow_nan=True"},
    {"--allow-nan merges", "allow_nan=True merges"},
    {"--allow-missing merges", "allow_missing=True merges"},
    {"--allow-crimes merges", "allow_crimes=True merges"},
    {"--force replaces", "force=True replaces"},
    {"--force does", "force=True does"},
    {"with --force", "with force=True"},
}};

std::string in_python(std::string message) {
  for (const auto& [command, call] : kCalls)
    for (size_t at = message.find(command); at != std::string::npos; at = message.find(command, at + call.size()))
      message.replace(at, command.size(), call);
  return message;
}

void raise(const char* type, const char* message) {
  const nb::object error = nb::module_::import_("vitrine.errors").attr(type);
  PyErr_SetObject(error.ptr(), text(in_python(message)).ptr());
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
