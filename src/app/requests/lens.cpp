// lens: what the model would predict after each layer.
#include "base/shell_word.h"
#include "inspect/parts.h"
#include "requests/shared.h"

namespace vitrine {
namespace {

constexpr size_t kMostReadings = 100'000;  // points times positions times tokens

RequestAnswer lens_answer(const Host& host, Fields& fields) {
  const std::vector<int32_t> ids = read_prompt(host, fields).ids;
  const std::vector<int64_t> positions = positions_field(fields.integers("positions"), ids.size(), "positions");
  const int64_t top = fields.integer("top").value_or(5);
  const size_t readings = (positions.empty() ? ids.size() : positions.size()) *
                          static_cast<size_t>(host.engine.shape().n_layers + 1) * static_cast<size_t>(top);
  if (readings > kMostReadings)
    throw invalid("positions", "the answer would hold " + std::to_string(readings) + " tokens, and may hold " +
                                   std::to_string(kMostReadings) + "; ask for fewer positions");
  LogitLens found;
  const bool tuned = fields.boolean("tuned", false);
  if (tuned && host.lens == nullptr)
    throw invalid("tuned", "there is no tuned lens here; start the server with --lens FILE, which `vitrine lens train` makes");
  const OrderedJson* edits = fields.find("edits");
  host.run([&](Engine& engine) {
    const std::unique_ptr<Interventions> planned = planned_edits(engine, edits, ids);
    found = logit_lens(engine, ids, positions, top, 0, planned.get(), tuned ? host.lens.get() : nullptr);
  });
  const Speller piece = speller_of(host.engine);
  RequestAnswer answer{tokens_json(host.engine, ids)};
  answer.json["layers"] = OrderedJson::array();
  for (size_t point = 0; point < found.points.size(); ++point) {
    OrderedJson rows = OrderedJson::array();
    for (size_t i = 0; i < found.positions.size(); ++i) {
      rows.push_back({{"position", found.positions[i]}});
      rows.back().update(json_of(found.at(point, i), piece));
    }
    answer.json["layers"].push_back({{"name", found.points[point]}, {"positions", std::move(rows)}});
  }
  std::vector<std::string> words = {"picture", "logit-lens", "--json"};
  if (tuned) words.insert(words.end(), {"--lens", shell_word(host.lens_file)});
  if (edits == nullptr || edits->empty()) answer.add_command(host, words, ids);
  return answer;
}

}  // namespace

Request lens_request() {
  return {
      "lens", "The logit lens: what the model would predict after each layer.",
      joined(
          {prompt_fields(),
           {{"positions", type::integers, "The positions to read; negative ones count from the end. Default: all."},
            top_field("Number of most likely tokens at each point. Default: 5.", 100),
            {"tuned", type::boolean,
             "Look through the tuned lens of `vitrine serve --lens`, which translates the residual stream at each point before "
             "the final norm. Default: false."},
            edits_field()}}),
      lens_answer};
}

}  // namespace vitrine
