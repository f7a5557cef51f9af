#pragma once
// What a conversion is made from, so that one that was stopped never goes on with something else.
#include <string>

#include "model/to_gguf.h"

namespace vitrine::cli {

/// Two conversions with the same text and the same header of the file write the same bytes. Names, sizes and times stand for the
/// files of weights, which are not read. Errors: RunError for a file that has vanished.
std::string conversion_record(const OpenedModel& opened, const GgufPlan& plan, const GgufEncoding& encoding);

}  // namespace vitrine::cli
