#pragma once
// What one merge did to every tensor, as `vitrine merge --report` shows it.
#include "merge/report.h"
#include "picture/data/values.h"

namespace vitrine {

/// The document of the report's page: MergeDocument in web/src/report/data.ts. NaN and infinity become null.
/// Errors: InputError naming the tensor and the list whose length does not fit the number of inputs, a shape or layer that cannot
/// be, and a base that is not among the inputs.
PictureJson merge_report_json(const MergeReport& report);

}  // namespace vitrine
