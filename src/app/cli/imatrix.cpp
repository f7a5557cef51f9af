// vitrine imatrix: how much each input of a model's matrices matters over a text, for convert --imatrix.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/plural.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/shard_flags.h"
#include "quantize/importance.h"

namespace vitrine::cli {
namespace {

struct ImatrixArguments {
  ModelOptions model;
  std::string file, out;
  int64_t context = 512, chunks = INT64_MAX;
  ShardFlags sharing;
};

void run_imatrix(const ImatrixArguments& o) {
  Engine engine = open_engine(o.model);
  check_output(engine, o.out, {o.file});
  const std::vector<int32_t> ids = engine.prompt_ids(read_file(o.file));
  SharedWork work = shared_work(o.sharing, {&engine});
  ImportanceMatrix matrix;
  double seconds = 0;
  {
    Progress progress("collecting");
    matrix = collect_importance(engine, ids, o.context, o.chunks, [&](double share) { progress.show(share, ""); }, &work);
    seconds = progress.seconds();
  }
  if (finish_part(work, o.model.json)) return;
  matrix.datasets = {std::filesystem::path(o.file).filename().string()};
  write_importance(matrix, o.out);
  const int64_t tokens = static_cast<int64_t>(matrix.chunks) * matrix.chunk_size;
  if (o.model.json)
    return print_json({{"out", o.out},
                       {"matrices", matrix.entries.size()},
                       {"chunks", matrix.chunks},
                       {"tokens", tokens},
                       {"seconds", seconds}});
  print("{} over {} in {}: {}\n", plural(grouped(static_cast<int64_t>(matrix.entries.size())), "tensor"),
        plural(grouped(tokens), "token"), plural(grouped(matrix.chunks), "chunk"), o.out);
}

Action define_imatrix(CLI::App& app) {
  auto o = std::make_shared<ImatrixArguments>();
  add_model_options(app, o->model);
  app.add_option("--file", o->file, "A text similar to the model's use; about 50,000 tokens are enough")
      ->type_name("FILE")
      ->required();
  app.add_option("--out", o->out, "The importance matrix to write, in llama.cpp's format (GGUF); replaced if it exists")
      ->type_name("FILE")
      ->required()
      ->check(not_empty());
  add_count(app, "--context", o->context, 1, INT32_MAX, "Tokens of a chunk; each is run separately (default 512)");
  add_count(app, "--chunks", o->chunks, 1, INT64_MAX, "Use only the first N chunks");
  add_shard_flags(app, o->sharing);
  return [o] { run_imatrix(*o); };
}

}  // namespace

const Command imatrix_command = {
    "imatrix", "Collect an importance matrix for quantizing",
    "Runs a text through the model in chunks and sums the squares of each matrix's inputs. convert --imatrix uses them to "
    "weight the error of each weight. The format is llama.cpp's: llama-quantize can read the file, and convert can read "
    "those of llama-imatrix.",
    "vitrine imatrix --file examples/fables.txt --out fables.imatrix.gguf", define_imatrix};

}  // namespace vitrine::cli
