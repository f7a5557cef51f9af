#pragma once
// The model that a run starts from, by what the configuration says: fresh, one that is there, or a checkpoint of the run.
#include <string>

#include "base/json.h"
#include "runtime/engine.h"
#include "train/config.h"

namespace vitrine {

/// checkpoint: what a run goes on from, or nothing. Fresh weights, and those of a fresh adapter, are not there yet; an adapter's
/// checkpoint is not read.
/// Errors: as resolve_model and open_model; InputError for what a run may not change, and for a tokenizer that is not there.
OpenedModel open_starting_model(const TrainConfig& config, const std::string& checkpoint);

/// What the configuration says about the model of fresh weights. Null for a model to go on from, and for a run that goes on when
/// what said it can be read no more: the checkpoint is enough.
Json given_model_config(const TrainConfig& config, bool goes_on);

}  // namespace vitrine
