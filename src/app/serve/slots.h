#pragma once
// Slots: names by which the cache of a client's texts can be saved, as in llama.cpp's server. Sequences have no fixed places
// here.
#include <cstdint>
#include <string>

#include "serve/service.h"

namespace vitrine::serve {

/// Errors: ApiError 400 for a number that no slot has.
void check_slot(const Service& service, int64_t slot, const std::string& field);

}  // namespace vitrine::serve
