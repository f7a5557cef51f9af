#include "model/expert_modules.h"

#include <map>

namespace vitrine {
namespace {

using Module = Adapter::Module;
using Lines = std::map<const Weight*, const TensorLine*>;

// Where transformers has the parameters: "model.layers.3.mlp.experts." of "model.layers.3.mlp.experts.0.up_proj.weight",
// "model.layers.3.block_sparse_moe.experts." of Granite's "model.layers.3.block_sparse_moe.input_linear.weight",
// "model.layers.3.experts." where they stand beside an MLP.
std::string module_of(const std::string& name, int64_t layer) {
  const std::string number = "." + std::to_string(layer) + ".";
  const size_t at = name.find(number), end = at == std::string::npos ? 0 : at + number.size();
  std::string part = name.substr(end, name.find('.', end) + 1 - end);
  if (part == "experts.") part.clear();
  // Mixtral's and Phi-3.5-MoE's, which transformers calls otherwise than their files.
  if (std::string_view(name).substr(end).starts_with("block_sparse_moe.experts.")) part = "mlp.";
  return name.substr(0, end) + part + "experts.";
}

void add_matrix(Module& m, const Lines& lines, const Weight& weight) {
  const TensorLine& line = *lines.at(&weight);
  if (m.weights.empty()) m.ours = line.ours;
  m.weights.push_back(line.weight);
  m.part_sizes.push_back(weight.out);
}

// Gate and up of one expert, or both in one matrix; without gates up alone.
Module gate_up_module(const Lines& lines, std::span<const Expert> experts, const ExpertSpec& spec) {
  Module m;
  const bool apart = static_cast<bool>(experts[0].gate);
  m.in = experts[0].in.in;
  m.out = experts[0].in.out * (apart ? 2 : 1);
  for (const Expert& expert : experts) {
    if (apart) add_matrix(m, lines, expert.gate);
    add_matrix(m, lines, expert.in);
  }
  // The clamped form has gate and up by turns in its parameter, also where a GGUF file holds them apart.
  const int64_t pairs = m.out / 2;
  for (int64_t row = 0; apart && spec.limit > 0 && row < m.out; ++row)
    m.file_row.push_back(row < pairs ? 2 * row : 2 * (row - pairs) + 1);
  return m;
}

Module down_module(const Lines& lines, std::span<const Expert> experts) {
  Module m;
  m.in = experts[0].out.in;
  m.out = experts[0].out.out;
  for (const Expert& expert : experts) add_matrix(m, lines, expert.out);
  return m;
}

}  // namespace

std::vector<Module> expert_modules(const OpenedModel& opened) {
  const Model& model = *opened.model;
  Lines lines;
  for (const TensorLine& line : model.tensors())
    if (line.weight != nullptr) lines[line.weight] = &line;
  std::vector<Module> modules;
  for (int64_t layer = 0; layer < model.shape().n_layers; ++layer) {
    const std::span<const Expert> experts = model.experts(layer);
    if (experts.empty()) continue;
    const TensorLine& stored = *lines.at(&experts[0].in);
    const ExpertSpec& spec = *model.layer(layer).experts;
    const std::string module = module_of(stored.huggingface, layer);
    const auto add = [&](Module m, const char* parameter) {
      m.name = module + parameter;
      m.layer = layer;
      m.experts = static_cast<int64_t>(experts.size());
      m.of_parameter = true;
      // transformers says of gpt-oss's parameters, which are clamped, that they are [in, out], and not of others.
      m.exchanged = stored.layout.by_columns && spec.limit == 0;
      modules.push_back(std::move(m));
    };
    add(gate_up_module(lines, experts, spec), spec.gated ? "gate_up_proj" : "up_proj");
    add(down_module(lines, experts), "down_proj");
  }
  return modules;
}

size_t place_in_file(const Module& m, int64_t expert, int64_t out, int64_t rank) {
  const int64_t row = m.file_row.empty() ? out : m.file_row[static_cast<size_t>(out)];
  return static_cast<size_t>((row * m.rank + rank) * m.experts + expert);
}

}  // namespace vitrine
