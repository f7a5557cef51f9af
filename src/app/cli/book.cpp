// vitrine book: the chapters, the experiments and the start page, as plain files for any static host.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <set>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "base/shell_word.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/picture_arguments.h"
#include "cli/session.h"
#include "io/atomic_file.h"
#include "io/temporary_folder.h"
#include "picture/data/document.h"
#include "picture/page/book_page.h"
#include "picture/page/chapters.h"
#include "picture/svg/opening.h"
#include "vitrine/version.h"

extern char** environ;

namespace vitrine::cli {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

struct Experiment {
  const char *name, *title, *summary;
  std::vector<Words> before;  // commands that it needs
  Words command;              // its page is the word behind
};

// Two layers that learn to continue lines of letters which repeat themselves.
const std::vector<Words> kModelThatRepeats = {
    {"data", "repeats.txt", "--document", "\\n", "--valid", "0.02", "--tokenizer", "characters", "--out", "repeats"},
    {"train", "examples/induction/train.yaml"}};

const std::vector<Experiment>& experiments() {
  static const std::vector<Experiment> list = {
      {"text",
       "A text, colored by its loss",
       "Fables by Aesop, each word colored by how little the model expected it, with what it expected instead.",
       {},
       {"eval", "perplexity", "--file", "examples/fables.txt", "--context", "256", "--out"}},
      {"patch",
       "Where the model keeps “king” or “queen”",
       "A value of one run is put into another, at every layer and position. Press a cell to see what the model then expects.",
       {},
       {"intervene", "examples/patch-king-queen.yaml", "--compute", "f32", "--page"}},
      {"ablate",
       "Which heads an answer needs",
       "After “Hansel and Gretel, Hansel and” comes “Gretel”. One head at a time is switched off.",
       {},
       {"intervene", "examples/ablate-heads.yaml", "--compute", "f32", "--page"}},
      {"circuits",
       "What attention heads look at",
       "Does a head look at the previous token, at copies, at what followed a copy? And which head reads what another writes?",
       {},
       {"circuits", "--page"}},
      {"film",
       "How induction heads come to be",
       "The checkpoints of a training as a film: when two heads learn to repeat what was read once, the loss of repeated letters "
       "falls.",
       kModelThatRepeats,
       {"circuits", "--checkpoints", "induction-model", "--repeat", "13", "--page"}},
      {"repeats",
       "Chapter 3, of a model that repeats",
       "The chapter on heads with the film's model, which has the two kinds of heads that continue a repetition.",
       kModelThatRepeats,
       {"explain", "thequickfoxthequickfoxthequ", "--chapter", "heads", "--model", "induction-model/step-1000", "--out"}},
      {"compare",
       "A model and its copy of four bits",
       "The same prompt through both: where the predictions part, in which layer, and which heads look elsewhere.",
       {{"convert", "models/tales9m", "tales9m-q4_0.gguf", "--dtype", "q4_0"}},
       {"compare", "models/tales9m", "tales9m-q4_0.gguf",
        "Once upon a time there was a king who lived in a great castle by the sea", "--page"}},
  };
  return list;
}

struct BookOptions {
  std::string out, documents;
  std::vector<std::string> models, pages;
};

// Periods of 8 to 31 letters: the pictures of heads read 31 tokens twice.
void write_repeats(const std::string& path) {
  constexpr int kLines = 12000, kLength = 128;
  std::mt19937 draw(0);
  std::ofstream out(path);
  for (int line = 0; line < kLines; ++line) {
    std::string round(8 + draw() % 24, ' '), text;
    for (char& letter : round) letter = static_cast<char>('a' + draw() % 26);
    while (text.size() < kLength) text += round;
    out << text.substr(0, kLength) << '\n';
  }
  if (!out.flush()) throw RunError(path + " cannot be written: " + std::strerror(errno));
}

std::string shell_line(const Words& words) {
  std::string line = "vitrine";
  for (const std::string& word : words) line += " " + (word.starts_with("--") ? word : shell_word(word));
  return line;
}

// Runs this program in the current folder; what it says is shown only if it fails.
void run_program(const Words& words) {
  const std::string log = "log";
  Words all = {"vitrine"};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int failed = posix_spawn(&child, "/proc/self/exe", &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) throw RunError(shell_line(words) + " cannot be started: " + std::strerror(failed));
  int status = 0;
  pid_t ended = 0;
  do ended = waitpid(child, &status, 0);
  while (ended < 0 && errno == EINTR);
  if (ended != child) throw RunError(shell_line(words) + " cannot be waited for: " + std::strerror(errno));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  std::ifstream said(log);
  const std::string text{std::istreambuf_iterator<char>(said), {}};
  throw RunError(shell_line(words) + " failed:\n" + text);
}

// Of the chapters, then of the experiments.
std::vector<std::string> page_names() {
  std::vector<std::string> names = chapter_names();
  for (const Experiment& experiment : experiments()) names.emplace_back(experiment.name);
  return names;
}

// Those that were named; all of them if none was.
std::set<std::string> chosen_pages(const std::vector<std::string>& named) {
  const std::vector<std::string> known = page_names();
  for (const std::string& name : named)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw UsageError(fmt::format("--pages: the book has no page \"{}\". Did you mean \"{}\"?", name, nearest(name, known)));
  const std::vector<std::string>& chosen = named.empty() ? known : named;
  return {chosen.begin(), chosen.end()};
}

// Of a model, with a name at the end: "tales/" and "." have one, too. What is not there is told before the chapters are made.
fs::path folder_or_file(const std::string& model) {
  require_utf8(model, "MODEL");
  std::error_code error;
  const fs::path path = fs::absolute(model, error).lexically_normal();
  if (!fs::exists(path, error)) throw UsageError(fmt::format("MODEL {} does not exist; give a folder or a .gguf file", model));
  return path.has_filename() ? path : path.parent_path();
}

class Book {
 public:
  explicit Book(const BookOptions& options) : pages_(chosen_pages(options.pages)), out_(fs::absolute(options.out)) {
    require_utf8(options.documents, "--documents");
    values_["documents"] = options.documents;
    for (const std::string& model : options.models) models_.push_back(folder_or_file(model));
    std::error_code error;
    fs::create_directories(out_, error);
    if (error) throw UsageError(fmt::format("--out {} cannot be made: {}", options.out, error.message()));
    // Everything is made in one folder, so that the commands on the pages name no folder of this machine.
    const fs::path shipped = fs::canonical(shipped_model()).parent_path();
    fs::create_directory_symlink(shipped, fs::path(work_.path()) / "models");
    fs::create_directory_symlink(shipped.parent_path() / "examples", fs::path(work_.path()) / "examples");
    fs::current_path(work_.path());
  }
  ~Book() {
    std::error_code error;
    fs::current_path(before_, error);
  }
  Book(const Book&) = delete;
  Book& operator=(const Book&) = delete;

  void write() {
    std::signal(SIGCHLD, SIG_DFL);  // one that is ignored, as a parent may have left it, hides how programs end
    for (const Chapter& chapter : chapters())
      if (pages_.contains(chapter.name)) add_chapter(chapter);
    for (const Experiment& experiment : experiments())
      if (pages_.contains(experiment.name)) add_experiment(experiment);
    for (const fs::path& model : models_) add_model(model);
    if (pages_.contains(kFirstChapter)) add_opening();
    const fs::path index = out_ / "index.html";
    write_file_atomically(index.string(), book_page(values_));
    log("{} written", index.string());
  }

 private:
  // The first chapter's model at work, as a drawing that moves.
  void add_opening() {
    PictureArguments o;
    o.prompt.text = chapter_of(kFirstChapter).prompt;
    o.prompt.has_text = true;
    Engine engine = open_engine(o.model);
    const PictureJson run = pictures_document(engine, prompt_of(engine, o), std::vector<std::string>{"logit-lens", "attention"});
    const std::optional<std::string> drawing = opening_svg(run, true);
    if (!drawing) return;
    write_file_atomically((out_ / "opening.svg").string(), *drawing);
    values_["opening"] = {{"file", "opening.svg"}, {"alt", run.at("pictures").at("logit-lens").at("alt")}};
  }

  void add_chapter(const Chapter& chapter) {
    Words words = {"explain", chapter.prompt, "--chapter", chapter.name, "--live"};
    if (std::string(chapter.model) != "tales9m") words.insert(words.end(), {"--model", std::string("models/") + chapter.model});
    words.emplace_back("--out");
    PictureJson entry = page(chapter.name, chapter.title, chapter.summary, words);
    entry["number"] = chapter_json(chapter).at("number");
    values_["chapters"].push_back(std::move(entry));
  }

  void add_experiment(const Experiment& experiment) {
    if (experiment.before == kModelThatRepeats && !fs::exists("repeats.txt")) write_repeats("repeats.txt");
    for (const Words& words : experiment.before)
      if (done_.insert(shell_line(words)).second) run_program(words);
    PictureJson entry = page(experiment.name, experiment.title, experiment.summary, experiment.command);
    entry["command"] = shell_line(experiment.command) + " page.html";
    values_["pages"].push_back(std::move(entry));
  }

  void add_model(const fs::path& model) {
    const std::string name = model.filename().string();
    if (name.empty() || fs::exists(name))
      throw UsageError(fmt::format("the name of {} is taken; give it another", model.string()));
    fs::create_symlink(model, name);
    std::string file = "model-";
    for (const char c : name) file += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' ? c : '-';
    const std::string prompt = chapters().front().prompt;
    if (!model_files_.insert(file).second)
      throw UsageError(fmt::format("the page of {} would replace that of another model; give it another name", model.string()));
    values_["models"].push_back(
        page(file, name, "“" + prompt + "” through this model.", {"explain", prompt, "--model", name, "--out"}));
  }

  // What the start page says of a page, which it makes.
  PictureJson page(const std::string& name, const std::string& title, const std::string& summary, Words words) {
    log("{} …", name);
    const std::string file = name + ".html";
    words.push_back(file);  // pages name the command that made them, and no folder of this machine
    run_program(words);
    const std::string made = read_file(file);
    fs::remove(file);
    write_file_atomically((out_ / file).string(), made);
    return {{"file", file}, {"title", title}, {"summary", summary}, {"size", bytes_text(static_cast<double>(made.size()))}};
  }

  std::set<std::string> pages_, model_files_, done_;
  fs::path out_, before_ = fs::current_path();
  std::vector<fs::path> models_;
  TemporaryFolder work_;
  PictureJson values_ = {{"version", version()},
                         {"opening", nullptr},
                         {"chapters", PictureJson::array()},
                         {"pages", PictureJson::array()},
                         {"models", PictureJson::array()}};
};

Action define_book(CLI::App& app) {
  auto o = std::make_shared<BookOptions>();
  app.add_option("MODEL", o->models, "Models that get a page of their own, without their weights in it: folders or .gguf files");
  app.add_option("--out,-o", o->out, "The folder to write; files of the same names are replaced")
      ->type_name("FOLDER")
      ->required()
      ->check(not_empty());
  app.add_option("--documents", o->documents, "Where the start page's link to documents leads, from the folder: docs/index.html")
      ->type_name("LINK");
  app.add_option("--pages", o->pages, fmt::format("Only these, separated by commas: {}", fmt::join(page_names(), ", ")))
      ->type_name("NAMES")
      ->expected(1)
      ->take_all()
      ->delimiter(',');
  return [o] { Book(*o).write(); };
}

}  // namespace

const Command book_command = {"book", "Write the book: chapters that run their model in the browser, and a start page",
                              "Writes plain files that any static web host serves, or a browser opens from the disk: a live page "
                              "for each chapter, pages of "
                              "experiments with the shipped model, and index.html, which links them. The experiments \"film\" "
                              "and \"repeats\" train a small model for half a "
                              "minute.",
                              "vitrine book --out book --pages next-word", define_book};

}  // namespace vitrine::cli
