#pragma once
// The matrices of a model that an adapter can stand beside, and their names as PEFT's targets.
#include <string>
#include <vector>

#include "model/adapter.h"

namespace vitrine {

inline constexpr const char* kAllLinear = "all-linear";

/// Every matrix of the model, as modules without values: those of the blocks first, the embeddings and the head with the rest.
std::vector<Adapter::Module> modules_of(const OpenedModel& opened);
/// The parameters of many matrices (experts) that the options name, the first of a module's two as PEFT nests them.
std::vector<Adapter::Module> parameters_of(const OpenedModel& opened, const AdapterOptions& options);

/// Whether a matrix is an embedding, of which rows are looked up.
bool is_lookup(const TensorLine& line);

/// Whether a target names the module. A parameter is named together with the module that has it: "experts.down_proj".
bool named_by(const std::string& target, const Adapter::Module& m);
/// The module as a target: "q_proj", of a parameter "experts.down_proj".
std::string short_name(const Adapter::Module& m);
/// Those of modules, each once, in their order.
std::vector<std::string> last_names(const std::vector<Adapter::Module>& modules);

/// Gives a module its sizes, scale and zeros; `index` is its number among all of the model.
void set_size(Adapter::Module& m, int64_t rank, double alpha, const AdapterOptions& options, size_t index);
/// Errors: InputError for dropout beside a parameter's matrices, which PEFT does not have, and beside the head.
void check_dropout(const AdapterOptions& options, const std::vector<Adapter::Module>& modules);
/// Errors: InputError for a model of a GGUF file that holds the factors of its family in its weights: PEFT's A and B are made for
/// weights without.
void refuse_held_factors(const OpenedModel& opened);
/// Puts the adapter beside the model's matrices.
void attach_adapter(OpenedModel& opened, std::shared_ptr<Adapter> adapter);

}  // namespace vitrine
