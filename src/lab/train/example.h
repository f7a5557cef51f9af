#pragma once
// The configuration that `vitrine train --example` prints.
#include <string>

namespace vitrine {

/// A commented configuration: fine-tunes the model in the folder `model` on what `vitrine data` made of the fables.
std::string example_train_config(const std::string& model);

}  // namespace vitrine
