#include "arrays.h"

#include <iterator>
#include <limits>
#include <memory>
#include <utility>

#include "base/error.h"

namespace vitrine::python {
namespace {

InputError no_token_id(const std::string& id, size_t place) {
  return InputError("token " + id + " at place " + std::to_string(place) +
                    " is no token id; ids are numbers from 0 to the vocabulary's end");
}

}  // namespace

Array array_of(FloatVector values, const std::vector<int64_t>& shape) {
  const std::vector<size_t> sizes(shape.begin(), shape.end());
  auto kept = std::make_unique<FloatVector>(std::move(values));
  float* data = kept->data();
  const nb::capsule owner(kept.get(), [](void* p) noexcept { delete static_cast<FloatVector*>(p); });
  kept.release();
  return Array(data, sizes.size(), sizes.data(), owner);
}

Array batch_of_one(FloatVector values, const std::vector<int64_t>& shape) {
  std::vector<int64_t> sizes = {1};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  if (shape.size() == 1) sizes.push_back(1);
  return array_of(std::move(values), sizes);
}

nb::dict arrays(const std::vector<std::string>& order, std::map<std::string, Recorder::Value, std::less<>>& values) {
  nb::dict result;
  for (const std::string& name : order) {
    Recorder::Value& value = values.find(name)->second;
    result[name.c_str()] = batch_of_one(std::move(value.values), value.shape);
  }
  return result;
}

std::vector<int32_t> token_ids(std::span<const int64_t> ids) {
  std::vector<int32_t> result(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t id = ids[i];
    if (id < 0 || id > std::numeric_limits<int32_t>::max()) throw no_token_id(std::to_string(id), i);
    result[i] = static_cast<int32_t>(id);
  }
  return result;
}

std::vector<int32_t> token_ids(const nb::sequence& ids) {
  std::vector<int64_t> numbers;
  for (const nb::handle id : ids) {
    const nb::object number = nb::steal(PyNumber_Index(id.ptr()));
    if (!number.is_valid()) throw nb::python_error();
    int overflow = 0;
    numbers.push_back(PyLong_AsLongLongAndOverflow(number.ptr(), &overflow));
    if (overflow != 0) throw no_token_id(nb::str(number).c_str(), numbers.size() - 1);
  }
  return token_ids(numbers);
}

std::vector<std::vector<int32_t>> rows_of_ids(const Ids& ids, const std::vector<int64_t>& lengths) {
  const std::vector<int32_t> all = token_ids(numbers(ids));
  std::vector<std::vector<int32_t>> rows;
  int64_t first = 0;
  for (const int64_t length : lengths) {
    if (length < 0 || length > std::ssize(all) - first)
      throw InputError("the rows' lengths are more than the " + std::to_string(all.size()) + " ids");
    rows.emplace_back(all.begin() + first, all.begin() + first + length);
    first += length;
  }
  return rows;
}

std::string utf8(const nb::str& text) {
  Py_ssize_t size = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (bytes != nullptr) return {bytes, static_cast<size_t>(size)};
  const nb::python_error reason;  // takes Python's own, which is no vitrine.InputError
  throw InputError("a text holds half of a surrogate pair, which is no character: " +
                   std::string(nb::str(reason.value()).c_str()) + ". Decode the text with errors=\"replace\" first");
}

std::vector<std::string> utf8(const std::vector<nb::str>& texts) {
  std::vector<std::string> result;
  for (const nb::str& text : texts) result.push_back(utf8(text));
  return result;
}

nb::str text(std::string_view bytes) {
  PyObject* decoded = PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
  if (decoded == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(decoded);
}

}  // namespace vitrine::python
