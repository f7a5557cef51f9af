#pragma once
// A number for a model's numbers, so that what was computed with one is not taken for another's.
#include <cstdint>
#include <string>

#include "model/load.h"

namespace vitrine {

/// Of everything that a model computes with: every weight with its name, shape and type, the configuration without its dropout
/// (of learning alone), a GGUF file's metadata. Reads the whole model. It finds differences, it is no protection against forgery.
uint64_t fingerprint_of(const OpenedModel& opened);

/// 16 digits.
std::string hexadecimal(uint64_t number);

}  // namespace vitrine
