#include "intervene/plan.h"

#include <memory>
#include <string_view>
#include <utility>

#include "inspect/features.h"
#include "intervene/captures.h"
#include "intervene/places.h"
#include "intervene/values.h"
#include "sae/sae_file.h"
#include "sae/splice.h"

namespace vitrine {
namespace {

using Target = Intervention::Target;
using Action = Intervention::Action;

std::vector<ValueEdit> of_norms(const EditPlan& plan) {
  constexpr std::string_view kHook = ".hook_normalized";
  std::vector<ValueEdit> edits;
  for (const Capture& capture : plan.captures) {
    const std::string norm = capture.name.substr(0, capture.name.size() - kHook.size());
    ValueEdit scale = edit_of(capture, ValueEdit::Kind::set), recall = edit_of(capture, ValueEdit::Kind::recall);
    scale.hook = norm + ".hook_scale";
    scale.values = {1};
    recall.sources = {norm + ".hook_normalized_pre"};
    if (plan.intervention.action == Action::unit_scale) edits.push_back(scale);
    if (plan.intervention.action == Action::no_weight) edits.push_back(recall);
    if (plan.intervention.action != Action::identity) continue;
    const std::vector<std::string> inputs = inputs_of_norm(plan.engine, norm);
    if (inputs.empty()) {
      edits.push_back(scale);  // x / 1 is x
    } else {
      recall.sources = inputs;
    }
    edits.push_back(recall);
  }
  return edits;
}

// Features of the autoencoders that the run goes through.
std::vector<ValueEdit> of_feature_hooks(const EditPlan& plan) {
  std::vector<ValueEdit> edits;
  for (const Capture& capture : plan.captures) {
    if (!capture.name.ends_with(".hook_sae_acts_post") && !capture.name.ends_with(".hook_sae_acts_pre"))
      throw InputError("\"features\" are those of an autoencoder, and " + capture.name +
                       " holds none; expected a hook that ends with .hook_sae_acts_post");
    for (const std::string& text : plan.intervention.features) {
      const FeatureEdit feature = parse_feature_edit(text);
      if (feature.feature >= capture.shape[1])
        throw InputError("there is no feature " + std::to_string(feature.feature) + "; " + capture.name + " has features 0 to " +
                         std::to_string(capture.shape[1] - 1));
      using enum FeatureEdit::Kind;
      ValueEdit edit = edit_of(capture, feature.kind == set   ? ValueEdit::Kind::set
                                        : feature.kind == add ? ValueEdit::Kind::add
                                                              : ValueEdit::Kind::scale);
      edit.heads = {feature.feature, feature.feature + 1};
      if (feature.kind == scale)
        edit.factor = static_cast<double>(feature.value);
      else
        edit.values = {feature.value};
      edits.push_back(std::move(edit));
    }
  }
  return edits;
}

std::vector<ValueEdit> edits_of(const EditPlan& plan) {
  std::vector<ValueEdit> edits;
  switch (plan.intervention.action) {
    case Action::mean: return mean_edits(plan);
    case Action::resample: return resample_edits(plan);
    case Action::set:
    case Action::add: return given_edits(plan);
    case Action::unit_scale:
    case Action::no_weight: return of_norms(plan);
    case Action::features: return of_feature_hooks(plan);
    case Action::identity: break;
    case Action::zero:
    case Action::scale:
      for (const Capture& capture : plan.captures) {
        ValueEdit edit =
            edit_of(capture, plan.intervention.action == Action::zero ? ValueEdit::Kind::set : ValueEdit::Kind::scale);
        if (plan.intervention.action == Action::zero) edit.values = {0};
        edit.factor = plan.intervention.factor;
        edits.push_back(std::move(edit));
      }
      return edits;
  }
  if (plan.intervention.target == Target::norm) return of_norms(plan);
  for (const Capture& capture : plan.captures) {  // a layer that lets the stream through
    ValueEdit edit = edit_of(capture, ValueEdit::Kind::recall);
    edit.sources = {capture.name.substr(0, capture.name.size() - 4) + "pre"};
    edits.push_back(std::move(edit));
  }
  return edits;
}

// An autoencoder's features, at its hook.
std::vector<ValueEdit> of_features(Engine& engine, const Intervention& intervention, int64_t rows) {
  auto sae = std::make_shared<SparseAutoencoder>(read_sae(intervention.of[0], intervention.sae_hook));
  check_fits(engine, *sae);
  Splice splice{sae, {}, intervention.keep_error};
  for (const std::string& text : intervention.features) splice.edits.push_back(parse_feature_edit(text));
  check_edits(*sae, splice.edits, intervention.of[0]);

  Intervention place = intervention;  // which positions: as those of a hook
  place.target = Target::hook;
  place.of = {sae->hook_name_out};
  std::vector<FeatureEdit> everywhere = std::move(splice.edits);
  splice.edits.clear();
  for (const Capture& capture : captures_of(engine, place, rows)) {
    const HookRequest::Range& at = capture.request.positions;
    for (FeatureEdit edit : everywhere) {
      edit.first = at.first;
      edit.end = at.end;
      splice.edits.push_back(edit);
    }
  }
  ValueEdit edit;
  edit.hook = sae->hook_name_out;
  edit.kind = ValueEdit::Kind::splice;
  if (sae->hook_name != sae->hook_name_out) edit.sources = {sae->hook_name};
  edit.splice = std::make_shared<const Splice>(std::move(splice));
  return {std::move(edit)};
}

}  // namespace

std::vector<ValueEdit> plan_edits(Engine& engine, const Intervention& intervention, const RecipePrompts& prompts,
                                  SourceValues& values) {
  return reported(intervention.where, [&] {
    const auto rows = static_cast<int64_t>(prompts.run().size());
    if (intervention.target == Target::sae) return of_features(engine, intervention, rows);
    return edits_of({engine, intervention, prompts, values, captures_of(engine, intervention, rows)});
  });
}

std::unique_ptr<Interventions> planned(Engine& engine, const Recipe& recipe, const std::vector<int32_t>& ids) {
  RecipePrompts prompts;
  prompts.clean = ids;
  SourceValues values(engine);
  auto changes = std::make_unique<Interventions>();
  for (const Intervention& one : recipe.interventions) changes->append(plan_edits(engine, one, prompts, values));
  return changes;
}

}  // namespace vitrine
