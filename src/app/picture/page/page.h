#pragma once
// The offline pages: every picture and the walk-through; the report of a merge.
#include <string>
#include <string_view>

#include "picture/data/document.h"
#include "picture/data/merge_report.h"
#include "picture/data/request.h"
#include "picture/data/values.h"
#include "picture/page/chapters.h"
#include "runtime/engine.h"

namespace vitrine {

/// The document of a page: every step and every picture of a chapter of the book. Errors: as picture_document, and UsageError for
/// an unknown chapter.
PictureJson explain_document(Engine& engine, const PicturePrompt& prompt, const PictureOptions& options = {},
                             std::string_view chapter = kFirstChapter);
/// The same, a part a call. Errors: as explain_document.
DocumentRuns explain_runs(Engine& engine, const PicturePrompt& prompt, const PictureOptions& options = {},
                          std::string_view chapter = kFirstChapter);

/// The offline page of a document. Errors: RunError if this build lacks the page's script.
std::string explain_page(const PictureJson& document);

/// The offline page of `vitrine merge --report`, in the look of the other. Errors: as merge_report_json, and RunError if this
/// build lacks the page's script.
std::string merge_report_page(const MergeReport& report);

/// The offline page of a document of picture/data/study.h. Errors: RunError if this build lacks the page's script.
std::string study_page(const PictureJson& document);

}  // namespace vitrine
