#pragma once
// A number for a model's values, so that what was computed with one is not taken for another's.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "model/load.h"

namespace vitrine {

/// Of everything that a model computes with: every weight with its name, shape and type, the configuration without its dropout
/// (of learning alone), a GGUF file's metadata. Reads the whole model. It finds differences, it is no protection against forgery.
uint64_t fingerprint_of(const OpenedModel& opened);

/// Adds any number of bytes to such a number, which begins at 0.
uint64_t add_to_fingerprint(uint64_t sum, std::span<const std::byte> bytes);

/// 16 digits.
std::string hexadecimal(uint64_t number);

}  // namespace vitrine
