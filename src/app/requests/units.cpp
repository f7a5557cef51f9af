// units: the most active units of an MLP, and what each writes.
#include "inspect/units.h"

#include "requests/shared.h"

namespace vitrine {
namespace {

RequestAnswer units_answer(const Host& host, Fields& fields) {
  const std::vector<int32_t> ids = read_prompt(host, fields).ids;
  UnitsOptions options;
  options.layer = fields.integer("layer").value_or(options.layer);
  options.position = fields.integer("position").value_or(options.position);
  options.units = fields.integer("units").value_or(options.units);
  options.tokens = fields.integer("top").value_or(options.tokens);
  UnitWrites found;
  host.run([&](Engine& engine) { found = unit_writes(engine, ids, options); });
  RequestAnswer answer{tokens_json(host.engine, ids)};
  answer.json.update(json_of(found, speller_of(host.engine)));
  return answer;
}

}  // namespace

Request units_request() {
  using namespace type;
  return {"units", "As `vitrine units --json` ([attribution.md](attribution.md#what-the-hidden-units-of-an-mlp-write)).",
          joined({prompt_fields(),
                  {{"layer", integer, "The layer.", Use::honored, 0, 1e6},
                   {"position", integer, "The position.", Use::honored, 0, 1e9},
                   {"units", integer, "Number of the most active hidden units. Default: 8.", Use::honored, 1, 64},
                   top_field("Number of tokens at either end. Default: 5.", 100)}}),
          units_answer};
}

}  // namespace vitrine
