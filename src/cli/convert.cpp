// vitrine convert: a model as a Hugging Face directory in another float type, an adapter merged into it.
#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "engine/model_tokenizer.h"
#include "model/adapter.h"
#include "model/export.h"
#include "model/from_gguf.h"

namespace vitrine::cli {
namespace {

struct ConvertArguments {
  std::string in, out, adapter, dtype = "bf16";
  bool json = false;
};

void run_convert(const ConvertArguments& o) {
  if (o.out.ends_with(".gguf"))
    throw UsageError("OUT is " + o.out + "; convert writes Hugging Face directories, and GGUF files are not written yet.");
  OpenedModel opened = as_huggingface(open_model(o.in));
  if (!o.adapter.empty()) open_adapter(opened, o.adapter);
  const DType dtype = o.dtype == "f32" ? DType::f32 : o.dtype == "f16" ? DType::f16 : DType::bf16;
  {
    const Companions companions = companions_of(opened);
    Progress progress("converting");
    write_huggingface(opened, companions, o.out, dtype, [&](double share) { progress.show(share, ""); });
  }
  const int64_t parameters = parameter_count(*opened.model);
  if (o.json) {
    OrderedJson document = {{"out", o.out}, {"dtype", o.dtype}, {"parameters", parameters}, {"merged_matrices", 0}};
    if (opened.adapter != nullptr) document["merged_matrices"] = opened.adapter->modules().size();
    return print_json(document);
  }
  print("{} parameters as {} in {}{}\n", grouped(parameters), o.dtype, o.out,
        opened.adapter == nullptr ? "" : fmt::format(", {} matrices with their adapter", opened.adapter->modules().size()));
}

}  // namespace

Action define_convert(CLI::App& app) {
  auto o = std::make_shared<ConvertArguments>();
  app.add_option("IN", o->in, "A Hugging Face directory, a .gguf file, or an id in the local Hugging Face cache")
      ->type_name("")
      ->required();
  app.add_option("OUT", o->out, "The Hugging Face directory to make; it must not be there yet")
      ->type_name("")
      ->required()
      ->check(not_empty());
  add_choice(app, "--dtype", o->dtype, "f32|f16|bf16",
             "The type of all weights, rounded to nearest, ties to even (default bf16)");
  app.add_option("--adapter", o->adapter,
                 "The folder of a LoRA adapter, which is merged into the weights before they are rounded")
      ->type_name("FOLDER")
      ->check(not_empty());
  add_json(app, o->json);
  return [o] { run_convert(*o); };
}

}  // namespace vitrine::cli
