#pragma once
// The pictures of the walk-through by name, and documents of one or all of them (web/src/data.ts).
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "picture/data/request.h"
#include "picture/data/values.h"
#include "runtime/engine.h"

namespace vitrine {

struct Studio;

struct PictureInfo {
  const char* name;
  const char* title;
  const char* summary;  // one line
};
/// Every picture of the walk-through, in its order.
const std::vector<PictureInfo>& pictures();
/// Errors: UsageError for an unknown name, naming the nearest.
void check_picture_name(std::string_view name);

/// The document with one picture (data.ts' Vitrine without steps).
/// Errors: UsageError for an unknown name, naming the nearest; InputError as Engine::check_ids, for a layer, head or position
/// that is not there, for words and sums that the vocabulary cannot spell, and for more than memory holds; RunError for NaN.
PictureJson picture_document(Engine& engine, const PicturePrompt& prompt, std::string_view name,
                             const PictureOptions& options = {});
/// The same with several pictures, of one run. Errors: as picture_document.
PictureJson pictures_document(Engine& engine, const PicturePrompt& prompt, std::span<const std::string> names,
                              const PictureOptions& options = {});

/// data.ts' Step[] for the pictures of a document, by their names.
using StepMaker = std::function<PictureJson(Studio&, const PictureJson& pictures)>;

/// A document of one run, made by one call for the run, one for each picture and one for the steps; between two calls the engine
/// may do other things.
class DocumentRuns {
 public:
  /// names: which pictures, in this order; empty: every one. steps: none, for a document without them. about: fields that the
  /// document gets, too. The model is not run. Errors: as picture_document.
  DocumentRuns(Engine& engine, PicturePrompt prompt, PictureOptions options, std::vector<std::string> names, StepMaker steps = {},
               PictureJson about = PictureJson::object());
  ~DocumentRuns();
  DocumentRuns(DocumentRuns&&) noexcept;
  DocumentRuns& operator=(DocumentRuns&&) noexcept;

  bool done() const;
  /// Not to be called when done, nor after an error. Errors: as picture_document.
  void next();
  /// The document; to be called once. Makes what is left of it.
  PictureJson take() &&;

 private:
  struct Made;
  std::unique_ptr<Made> made_;
};

}  // namespace vitrine
