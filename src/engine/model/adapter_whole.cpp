#include "model/adapter_whole.h"

#include <algorithm>

#include "base/error.h"
#include "model/adapter_modules.h"
#include "model/config_file.h"
#include "model/export.h"
#include "model/gguf_order.h"
#include "model/layer_name.h"
#include "model/registry.h"

namespace vitrine {
namespace {

using Whole = Adapter::Whole;

std::string without_ending(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

const TensorLine* line_of(const Model& model, std::string_view ours) {
  for (const TensorLine& line : model.tensors())
    if (line.ours == ours) return &line;
  return nullptr;
}

// As PEFT has it: the end of the name of the module or of one that holds it.
bool saved_by(const std::string& target, const std::string& tensor) {
  for (size_t dot = tensor.find('.'); dot != std::string::npos; dot = tensor.find('.', dot + 1))
    if (tensor.substr(0, dot).ends_with(target)) return true;
  return false;
}

void refuse_other_form(const OpenedModel& opened, const FileTensor& tensor) {
  if (opened.gguf == nullptr || opened.files.kind != ModelFiles::Kind::gguf) return;
  for (const TensorLine* line : tensor.parts)
    if (!gguf_rows(*line, opened.model->shape().head_dim).empty() || line->layout.tiles || line->layout.gguf_offset != 0 ||
        line->layout.gguf_minus_exp)
      throw InputError("the adapter changes the whole tensor \"" + tensor.name + "\", which the GGUF file " + opened.files.name +
                       " holds in another form. Convert the model to a Hugging Face directory first (vitrine convert)");
}

}  // namespace

int64_t Whole::count() const {
  int64_t count = 1;
  for (const int64_t n : tensor.shape) count *= n;
  return count;
}

EmbeddingNames embedding_names(const Model& model) {
  const TensorLine* const embedding = line_of(model, "W_E");
  const TensorLine* const head = line_of(model, "W_U");
  return {embedding != nullptr ? without_ending(embedding->huggingface) : "",
          without_ending(head != nullptr ? head->huggingface : family_of(model).head)};
}

std::optional<Whole> whole_of(const OpenedModel& opened, const std::string& name) {
  const Model& model = *opened.model;
  const bool tied_head = model.shape().tied && name == family_of(model).head;
  for (FileTensor& tensor : file_tensors(model, false)) {
    if (tensor.is_constant() || (tied_head ? tensor.parts.front()->ours != "W_E" : tensor.name != name)) continue;
    refuse_other_form(opened, tensor);
    Whole whole;
    whole.name = "base_model.model." + name;
    whole.lookup = !tied_head && is_lookup(*tensor.parts.front());
    whole.product = !whole.lookup;
    whole.tensor = std::move(tensor);
    return whole;
  }
  return {};
}

std::vector<Whole> fresh_wholes(const OpenedModel& opened, const AdapterOptions& options,
                                const std::vector<Adapter::Module>& modules) {
  const Model& model = *opened.model;
  const auto adapts = [&](const std::string& module) {
    return std::any_of(modules.begin(), modules.end(), [&](const Adapter::Module& m) { return m.name == module; });
  };
  std::vector<Whole> wholes;
  std::vector<bool> used(options.saved.size(), false);
  for (const FileTensor& tensor : file_tensors(model, false)) {
    bool wanted = false;
    // A tied head that stays so is the embedding.
    const bool head_too = model.shape().tied && tensor.parts.front()->ours == "W_E";
    for (size_t i = 0; i < options.saved.size(); ++i)
      if (saved_by(options.saved[i], tensor.name) || (head_too && saved_by(options.saved[i], family_of(model).head)))
        wanted = used[i] = true;
    const bool bias = tensor.name.ends_with(".bias") || tensor.name.ends_with("_bias");
    const bool of_target = bias && adapts(without_ending(tensor.name));
    wanted |= options.bias == AdapterOptions::Bias::all ? bias : options.bias == AdapterOptions::Bias::of_targets && of_target;
    if (!wanted || tensor.is_constant()) continue;
    Whole whole = *whole_of(opened, tensor.name);
    if (of_target) whole.name.insert(whole.name.rfind('.'), ".base_layer");
    if (head_too) whole.product = true;
    whole.values.resize(static_cast<size_t>(whole.count()));
    read_rows(whole.tensor, 0, whole.tensor.rows(), whole.values.data());
    wholes.push_back(std::move(whole));
  }
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i])
      throw InputError("lora.modules_to_save: \"" + options.saved[i] + "\" names no module of " + opened.files.name +
                       "; expected the end of a name such as \"" + embedding_names(model).embedding + "\"");
  return wholes;
}

Adapter::Tokens tokens_of(const OpenedModel& opened, const std::string& module, std::vector<int64_t> rows, bool in_both) {
  const Model& model = *opened.model;
  const EmbeddingNames names = embedding_names(model);
  const TensorLine* const embedding = line_of(model, "W_E");
  const TensorLine* const head = line_of(model, "W_U");
  Adapter::Tokens tokens;
  tokens.name = module;
  tokens.lookup = module == names.embedding;
  tokens.product = in_both || !tokens.lookup;
  const TensorLine* const line = tokens.lookup || model.shape().tied ? embedding : head;
  VITRINE_CHECK(line != nullptr, "a model with trained tokens has an embedding");
  tokens.weight = line->weight;
  std::sort(rows.begin(), rows.end());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0 || rows[i] >= line->out.size)
      throw InputError("trainable_token_indices has " + std::to_string(rows[i]) + "; expected tokens from 0 to " +
                       std::to_string(line->out.size - 1) + " of the vocabulary of " + opened.files.name);
    if (i > 0 && rows[i] == rows[i - 1])
      throw InputError("trainable_token_indices has " + std::to_string(rows[i]) + " twice; expected each token once");
  }
  LowRank& part = tokens.part;
  part.A.name = tokens.tensor_name();
  part.A.out = std::ssize(rows);
  part.A.in = line->in.size;
  part.A.stride = static_cast<size_t>(line->in.size) * sizeof(float);
  part.rows = std::move(rows);
  tokens.values.resize(part.rows.size() * static_cast<size_t>(line->in.size));
  return tokens;
}

void fill_tokens(Adapter::Tokens& tokens) {
  const int64_t width = tokens.part.A.in;
  for (size_t k = 0; k < tokens.part.rows.size(); ++k)
    for (int64_t i = 0; i < width; ++i)
      tokens.values[k * static_cast<size_t>(width) + static_cast<size_t>(i)] = tokens.weight->at<float>(tokens.part.rows[k], i);
}

void untie(OpenedModel& opened) {
  VITRINE_CHECK(opened.adapter == nullptr, "a model is untied before it has an adapter");
  ModelFiles files = opened.files;
  if (opened.gguf != nullptr && files.kind == ModelFiles::Kind::huggingface)
    throw InputError(files.name +
                     ": the adapter parts the tied embedding and head. Convert the model to a Hugging Face directory "
                     "first (vitrine convert)");
  files.untied = true;
  if (files.kind == ModelFiles::Kind::huggingface) {
    set_config_tied(files.config, false);
    for (const char* other : {"tie_embedding", "tied"})  // of LFM2, of the classic decoder
      if (files.config.contains(other)) files.config[other] = false;
  }
  opened = open_model(std::move(files));
  VITRINE_CHECK(!opened.model->shape().tied, "an untied configuration gives a head of its own");
}

}  // namespace vitrine
