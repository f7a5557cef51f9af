#pragma once
// Numbers as NumPy arrays without copying them, and token ids from arrays.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/recorder.h"
#include "vitrine/float_vector.h"

namespace vitrine::python {

namespace nb = nanobind;

using Array = nb::ndarray<nb::numpy, float>;
using Ids = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// An array of this shape over `values`, which live as long as any array or DLPack consumer looks at them.
Array array_of(FloatVector values, const std::vector<int64_t>& shape);

/// An array [1, shape…] over `values`. Values have a batch axis in front, and a norm's scale, one number a row, is [1, position,
/// 1], as TransformerLens has them.
Array batch_of_one(FloatVector values, const std::vector<int64_t>& shape);

/// Arrays by hook name, in that order, each as batch_of_one makes it; the numbers are handed over.
nb::dict arrays(const std::vector<std::string>& order, std::map<std::string, Recorder::Value, std::less<>>& values);

/// Errors: InputError for a number that no token id can be, with its place.
std::vector<int32_t> token_ids(std::span<const int64_t> ids);

/// The same of a sequence of whole numbers, as large as Python has them. Raises TypeError for what is no whole number.
std::vector<int32_t> token_ids(const nb::sequence& ids);

inline std::span<const int64_t> numbers(const Ids& ids) { return {ids.data(), ids.size()}; }

/// Rows of ids, one behind the other in `ids`, of these lengths. Errors: as token_ids, and InputError for lengths of other sums.
std::vector<std::vector<int32_t>> rows_of_ids(const Ids& ids, const std::vector<int64_t>& lengths);

/// Python's text as UTF-8. Errors: InputError for half of a surrogate pair, which is no text.
std::string utf8(const nb::str& text);
std::vector<std::string> utf8(const std::vector<nb::str>& texts);

/// Text for Python; bytes that are not UTF-8 become U+FFFD.
nb::str text(std::string_view bytes);

}  // namespace vitrine::python
