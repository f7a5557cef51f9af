#pragma once
// Python's operators on template values.
#include "jinja/value.h"

namespace vitrine::jinja {

bool equal(Meter& meter, const Value& a, const Value& b);
/// a < b. Errors: Problem for types without an order.
bool less(Meter& meter, const Value& a, const Value& b);
bool less_or_equal(Meter& meter, const Value& a, const Value& b);
/// needle in haystack. Errors: Problem where Python raises TypeError.
bool contains(Meter& meter, const Value& haystack, const Value& needle);

enum class Arithmetic : uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };
/// Errors: Problem for operands that do not go together, division by zero, integers beyond 64 bits.
Value arithmetic(Meter& meter, Arithmetic operation, const Value& a, const Value& b);
Value negate(const Value& value);
Value plus(const Value& value);

/// The elements of a value, one after the other. Errors: Problem if it has none ("'int' object is not iterable").
Next iterate(Meter& meter, const Value& value);
std::vector<Value> to_vector(Meter& meter, const Value& value);

/// value[start:stop:step], where None counts as absent. Errors: Problem for what has no slices.
Value slice(Meter& meter, const Value& value, const Value& start, const Value& stop, const Value& step);

/// value[key] without the fallback to attributes; nothing where Python raises LookupError or TypeError.
std::optional<Value> item(Meter& meter, const Value& value, const Value& key);

/// Position of the first `needle` at or after byte `from`; npos if there is none. Linear time whatever the texts.
size_t find_bytes(std::string_view text, std::string_view needle, size_t from = 0);

}  // namespace vitrine::jinja
