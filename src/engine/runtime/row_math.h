#pragma once
// Arithmetic over one row of scores, as long as a vocabulary and done for every token: written in eight independent lanes, so
// that the compiler turns it into vector instructions.
#include <cstddef>
#include <span>

namespace vitrine {

/// The largest value of a row that holds no NaN; -inf for an empty one.
float largest(std::span<const float> row);

/// The first index of the largest value; 0 for an empty row.
size_t argmax(std::span<const float> row);

/// Whether every value is a number: no NaN, no infinity.
bool all_finite(std::span<const float> row);

/// The sum, in double.
double row_sum(std::span<const float> row);

/// out[i] = exp(row[i] - top) for row[i] <= top, to 2e-7 relative; 0 below exp(-87). Returns the sum, in double.
double exponentials(std::span<const float> row, float top, float* out);

/// The same sum without keeping the terms.
double sum_of_exponentials(std::span<const float> row, float top);

}  // namespace vitrine
