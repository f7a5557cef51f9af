#pragma once
// The pictures of the walk-through by name, and documents of one or all of them (web/src/data.ts).
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "picture/data/request.h"
#include "picture/data/values.h"

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
/// The document with every picture and with the steps that `steps` makes of them. Errors: as picture_document.
PictureJson full_document(Engine& engine, const PicturePrompt& prompt, const PictureOptions& options, const StepMaker& steps);

}  // namespace vitrine
