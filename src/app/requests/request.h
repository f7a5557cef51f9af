#pragma once
// What can be asked of a model's inside: each request with its fields and its answer, in a file of its own. Endpoints of a server
// and the engine of a live page answer the same requests.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "generate/token_sequence.h"
#include "requests/fields.h"
#include "runtime/engine.h"

namespace vitrine {

class Learner;
struct TunedLens;

/// Who answers: the model, and what else there is.
struct Host {
  const Engine& engine;  // read at any time: tokenizer, shapes
  std::string name;      // of the model's files, as open_model takes it; pages show it
  /// Runs a piece of work on the engine, now or when its turn comes, and returns when it is done. Requests run in pieces (a
  /// picture, a token), between which the engine may do other things.
  std::function<void(const std::function<void(Engine&)>&)> run;
  int threads = 0;                          // of a step of training, which has an engine of its own; 0: the cores
  const std::atomic<bool>* gone = nullptr;  // ends such a step once it is true

  // Of some hosts.
  /// Where an answer that is made in pieces waits until the same is asked again; another question may take its place.
  std::shared_ptr<void>* unfinished = nullptr;
  /// Where the copy of the model that steps of training have changed waits for more of them; null: nowhere.
  std::shared_ptr<Learner>* learner = nullptr;
  bool files = false;                          // an answer may be a file
  std::shared_ptr<const TunedLens> lens = {};  // a tuned lens that fits the model, and the file that it is
  std::string lens_file = {};
  /// The ids of a conversation by the model's chat template.
  std::function<std::vector<int32_t>(const OrderedJson& messages, Fields& fields)> chat = {};
  /// Reads the options of a text behind so many tokens from fields that are the host's; none: drawn_fields() alone.
  std::function<GenerateOptions(const Fields& fields, size_t prompt_tokens)> generation = {};
  /// The command line that gives the same numbers: `words` are the command and its flags, as a shell reads them. With ids: for
  /// this prompt. Null where there is none.
  std::function<OrderedJson(const std::vector<std::string>& words, const std::vector<int32_t>& ids)> command = {};
};

struct RequestAnswer {
  OrderedJson json;        // an object
  std::string hooks = {};  // its last member, as hooks_text() gives it
  std::string file = {};   // which is the answer then
  const char* file_name = "inspect.safetensors";

  /// The member "command", if the host has one.
  void add_command(const Host& host, const std::vector<std::string>& words, const std::vector<int32_t>& ids = {});
  /// The object as text, with the names of the ignored fields.
  std::string text(const Fields& fields) &&;
};

/// `object` as text with one member more behind the others, whose value is JSON text.
std::string with_member(const OrderedJson& object, const std::string& name, const std::string& text);

struct Request {
  const char* name;
  const char* summary;  // a sentence
  std::vector<Field> fields;
  /// Errors: RequestError; what the functions behind the request throw.
  RequestAnswer (*answer)(const Host& host, Fields& fields);
  bool generates = false;  // a server gives it the fields of its other texts
};

/// All of them, in the order of the documents.
const std::vector<Request>& requests();
/// "document, next, ..."
std::string request_names();
/// Errors: UsageError naming those that there are.
const Request& find_request(std::string_view name);

}  // namespace vitrine
