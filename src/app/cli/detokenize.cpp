#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "runtime/model_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace vitrine::cli {
namespace {

struct DetokenizeOptions {
  std::string model, ids;
  bool no_special = false, json = false;
};

void detokenize(const DetokenizeOptions& o) {
  const std::vector<int32_t> ids = parse_ids(o.ids, "IDS");
  const auto tokenizer = open_tokenizer(model_or_shipped(o.model));
  const std::string text = tokenizer->decode(ids, o.no_special);
  if (!o.json) {
    print("{}\n", text);
    return;
  }
  OrderedJson pieces = OrderedJson::array();
  for (const int32_t id : ids) pieces.push_back(tokenizer->piece(id));
  print_json({{"text", text}, {"tokens", ids}, {"pieces", pieces}});
}

Action define_detokenize(CLI::App& app) {
  auto o = std::make_shared<DetokenizeOptions>();
  app.add_option("IDS", o->ids, "Token ids, such as 2,651")->type_name("")->required();
  add_model_name(app, o->model);
  app.add_flag("--no-special", o->no_special,
               "Omit control tokens from the text; with a tokenizer.json, those marked as special");
  add_json(app, o->json);
  return [o] { detokenize(*o); };
}

}  // namespace

const Command detokenize_command = {"detokenize", "Join token ids to text",
                                    "The text is the same, byte for byte, as that of the tokenizer's reference library.",
                                    "vitrine detokenize 2,2165,374,650,264,614", define_detokenize};

}  // namespace vitrine::cli
