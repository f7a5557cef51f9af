// vitrine convert: a model as a Hugging Face directory or a GGUF file in another type, an adapter merged into it.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/convert_record.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/stop_signals.h"
#include "io/resumable_file.h"
#include "model/adapter.h"
#include "model/adapter_gguf.h"
#include "model/export.h"
#include "model/from_gguf.h"
#include "model/to_gguf.h"
#include "quantize/encoding.h"
#include "runtime/model_tokenizer.h"

namespace vitrine::cli {
namespace {

struct ConvertArguments {
  std::string in, out, adapter, dtype, imatrix;
  int64_t threads = 0, window = 0;
  bool pure = false, adapter_only = false, json = false;
};

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// The words of --dtype: "f32|f16|bf16|q4_0|…".
std::string dtype_words() {
  std::string words;
  for (const Mixture& mixture : mixtures()) words += (words.empty() ? "" : "|") + lower(std::string(mixture.name));
  return words;
}

// "Q4_K" stands for "q4_k_m", as for llama-quantize.
std::string known_as(std::string word) {
  const Mixture* const mixture = find_mixture(word);
  return mixture == nullptr ? word : lower(std::string(mixture->name));
}

// The type that most weights of a model have, those in blocks aside, if it is one of 16 bits; else f16.
std::string own_type(const Model& model) {
  std::map<DType, int64_t> numbers;
  for (const TensorLine& line : model.tensors())
    if (line.weight != nullptr && !is_block(line.weight->dtype)) numbers[line.weight->dtype] += line.out.size * line.in.size;
  const auto most =
      std::max_element(numbers.begin(), numbers.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most != numbers.end() && most->first == DType::bf16 ? "bf16" : "f16";
}

int64_t merged_matrices(const OpenedModel& opened) {
  return opened.adapter == nullptr ? 0 : static_cast<int64_t>(opened.adapter->modules().size());
}

void report(const ConvertArguments& o, const std::string& dtype, const OpenedModel& opened, OrderedJson more) {
  const int64_t parameters = parameter_count(*opened.model);
  if (o.json) {
    OrderedJson document = {
        {"out", o.out}, {"dtype", dtype}, {"parameters", parameters}, {"merged_matrices", merged_matrices(opened)}};
    document.update(more);
    return print_json(document);
  }
  print("{} parameters as {} in {}{}\n", grouped(parameters), dtype, o.out,
        opened.adapter == nullptr ? "" : fmt::format(", {} matrices with their adapter", merged_matrices(opened)));
}

OpenedModel open_input(const ConvertArguments& o) {
  ModelFiles files = resolve_model(o.in);
  files.window = o.window;
  return open_model(std::move(files));
}

void convert_to_directory(const ConvertArguments& o) {
  if (!o.imatrix.empty() || o.pure)
    throw UsageError("--imatrix and --pure are for GGUF files; OUT is " + o.out + ", which does not end in .gguf.");
  OpenedModel opened = as_huggingface(open_input(o));
  if (!o.adapter.empty()) open_adapter(opened, o.adapter);
  const std::string dtype = o.dtype.empty() ? "bf16" : o.dtype;
  {
    const Companions companions = companions_of(opened);
    Progress progress("converting");
    write_huggingface(opened, companions, o.out, find_mixture(dtype)->base, [&](double share) { progress.show(share, ""); });
  }
  report(o, dtype, opened, OrderedJson::object());
}

// Makes the folder. Errors: InputError for a file that is there, and for a disk that it does not fit on. What a run before has
// left of the file takes no more room.
void check_place(const std::string& out, uint64_t bytes) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(fs::symlink_status(out, error)))
    throw InputError(out + " is there already; name a new file, or remove it first");
  const fs::path folder = fs::path(out).parent_path();
  error.clear();  // there is no such file, as it should be
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error) throw InputError(out + " cannot be made: " + error.message() + ". Name a place that you may write to");
  const fs::space_info space = fs::space(folder.empty() ? "." : folder, error);
  const uint64_t left_behind = ResumableFile::left_behind(out), more = bytes - std::min(bytes, left_behind);
  if (!error && space.available < more)
    throw InputError(out + " needs " + bytes_text(static_cast<double>(more)) + (left_behind > 0 ? " more" : "") +
                     ", and its disk has " + bytes_text(static_cast<double>(space.available)) +
                     " left. Make room, name another place, or a smaller --dtype");
}

// Says what a conversion will take, and then how far it is.
class ConversionView {
 public:
  ConversionView(std::string out, uint64_t bytes) : out_(std::move(out)), bytes_(bytes) {}

  void operator()(const GgufProgress& now) {
    const auto size = [](uint64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
    if (progress_ != nullptr) return progress_->show(now.share, fmt::format("{} of {}", size(now.written), size(bytes_)));
    progress_ = std::make_shared<Progress>("converting");  // copied with this
    progress_->begin(now.share);
    if (now.began_anew)
      log("{}: what a run before left was made from another input, with other options or by another vitrine; beginning anew",
          out_);
    if (now.kept > 0) log("{}: {} are there from a run before; going on from there", out_, size(now.kept));
    log("{} will take {}{}", out_, size(bytes_),
        now.seconds < 1 ? "" : " and about " + duration_text(now.seconds) + (now.kept > 0 ? " more" : ""));
  }

 private:
  std::string out_;
  uint64_t bytes_;
  std::shared_ptr<Progress> progress_;
};

void convert_to_gguf(const ConvertArguments& o) {
  OpenedModel opened = open_input(o);
  if (!o.adapter.empty()) open_adapter(opened, o.adapter);
  const std::string dtype = o.dtype.empty() ? own_type(*opened.model) : o.dtype;
  ImportanceMatrix importance;
  if (!o.imatrix.empty()) importance = read_importance(o.imatrix);
  const GgufEncoding encoding =
      mixture_encoding(opened, *find_mixture(dtype),
                       {.pure = o.pure, .importance = o.imatrix.empty() ? nullptr : &importance, .importance_file = o.imatrix});
  const GgufPlan plan = plan_gguf(opened, opened.gguf == nullptr ? vocabulary_keys(opened) : GgufKeys(), encoding);
  check_place(o.out, plan.bytes);
  {
    const std::string folder = ResumableFile::work_folder(o.out);
    const LastWords words(
        fmt::format("stopped: {} is not written. Finished parts are kept in {}. The same command continues from there", o.out,
                    folder),
        folder);
    ThreadPool pool(static_cast<int>(o.threads));
    write_gguf(opened, plan, encoding, o.out, pool,
               {.made_from = conversion_record(opened, plan, encoding), .watch = ConversionView(o.out, plan.bytes)});
  }
  report(o, dtype, opened, {{"tensors", plan.tensors.size()}, {"bytes", std::filesystem::file_size(o.out)}});
}

// The adapter alone, in the other kind of file.
void convert_adapter(const ConvertArguments& o) {
  if (o.adapter.empty()) throw UsageError("--adapter-only needs --adapter, the adapter that is converted; IN is its base model.");
  if (!o.dtype.empty() || !o.imatrix.empty() || o.pure)
    throw UsageError("--dtype, --imatrix and --pure are for models; an adapter is written in f32.");
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(fs::symlink_status(o.out, error)))
    throw InputError(o.out + " is there already; name a new file or folder, or remove it first");
  OpenedModel opened = open_input(o);
  open_adapter(opened, o.adapter);
  if (o.out.ends_with(".gguf")) {
    write_gguf_adapter(opened, *opened.adapter, o.out);
  } else {
    check_modules_of_peft(opened, *opened.adapter);
    fs::create_directories(o.out, error);
    if (error) throw InputError(o.out + " cannot be made: " + error.message() + ". Name a place that you may write to");
    write_adapter(*opened.adapter, o.out, o.in);
  }
  if (o.json) return print_json(OrderedJson{{"out", o.out}, {"adapted_matrices", merged_matrices(opened)}});
  print("an adapter of {} matrices in {}\n", merged_matrices(opened), o.out);
}

void run_convert(const ConvertArguments& o) {
  if (o.adapter_only) return convert_adapter(o);
  o.out.ends_with(".gguf") ? convert_to_gguf(o) : convert_to_directory(o);
}

Action define_convert(CLI::App& app) {
  auto o = std::make_shared<ConvertArguments>();
  app.add_option("IN", o->in, "A Hugging Face directory, a .gguf file, or an id in the local Hugging Face cache")
      ->type_name("")
      ->required();
  app.add_option("OUT", o->out,
                 "The output: a GGUF file if it ends in .gguf, otherwise a Hugging Face directory. It must not exist yet")
      ->type_name("")
      ->required()
      ->check(not_empty());
  add_choice(
      app, "--dtype", o->dtype, dtype_words(),
      "The type of the weights: for a directory f32, f16 or bf16 (default bf16); for a GGUF file also a block type or one of "
      "llama-quantize's mixtures, such as q8_0, q6_k, q5_k_m, q4_k_m, iq4_xs, q4_0, q3_k_m or iq2_m (default: the weights' "
      "own 16-bit type, otherwise f16). docs/quantizing.md lists all")
      ->transform(known_as)
      ->type_name("TYPE");  // the words are too many for a line
  app.add_option("--imatrix", o->imatrix, "An importance matrix from vitrine imatrix or llama-imatrix, which weights errors")
      ->type_name("FILE")
      ->check(not_empty());
  app.add_flag("--pure", o->pure, "Give all matrices the same type, also those with a better type in the mixture");
  app.add_option(
         "--adapter", o->adapter,
         "A LoRA adapter, which is merged into the weights before they are rounded: the folder that PEFT wrote, or a .gguf file")
      ->type_name("FOLDER")
      ->check(not_empty());
  app.add_flag(
      "--adapter-only", o->adapter_only,
      "Write the adapter itself instead of a merged model: for llama.cpp if OUT ends in .gguf, otherwise a folder for PEFT");
  add_window(app, o->window);
  add_count(app, "--threads", o->threads, 1, 1024,
            "Threads to encode a GGUF file with (default: all cores this process may use)");
  add_json(app, o->json);
  return [o] { run_convert(*o); };
}

}  // namespace

const Command convert_command = {
    "convert", "Convert a model to a Hugging Face directory or a GGUF file, or merge an adapter into it",
    "Reads a Hugging Face directory or a GGUF file. If OUT ends in .gguf, it writes one GGUF file for llama.cpp with "
    "configuration, vocabulary and chat template; otherwise a directory with configuration, tokenizer and weights. "
    "Weights are widened and rounded once, to nearest; in a GGUF file weights that already have the type are copied. "
    "--adapter adds a LoRA adapter to the weights in f32, before they are rounded. See docs/models.md and docs/lora.md.",
    "vitrine convert tests/golden/models/gpt2_a/model gpt2-bf16 --dtype bf16\n"
    "vitrine convert tests/golden/gguf/llama_q8_0.gguf llama-f32 --dtype f32\n"
    "vitrine convert models/tales9m tales9m-q8_0.gguf --dtype q8_0\n"
    "vitrine convert tests/golden/models/gpt2_a/model gpt2-merged --adapter tests/golden/lora/gpt2_a/adapter --dtype f32",
    define_convert};

}  // namespace vitrine::cli
