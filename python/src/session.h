#pragma once
// An opened model as Python holds it: one run at a time, and never one inside another.
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "edited_weights.h"
#include "grammar/grammar.h"
#include "runtime/engine.h"

namespace vitrine::python {

/// Shared by everything that reads the model's memory: weights seen as arrays, tokenizer, streams.
class Session {
 public:
  explicit Session(std::unique_ptr<Engine> made) : engine(*made), owned_(std::move(made)) {}
  Engine& engine;
  EditedWeights edited;

  /// Errors: as GrammarCompiler and its compile(). The vocabulary is read once.
  std::shared_ptr<const Constraint> compile(const Grammar& grammar) {
    const std::lock_guard lock(grammars_mutex_);
    if (grammars_ == nullptr) grammars_ = std::make_unique<GrammarCompiler>(engine.tokenizer(), engine.shape().vocab_size);
    return grammars_->compile(grammar);
  }

 private:
  friend class Running;
  std::unique_ptr<Engine> owned_;
  std::mutex mutex_;
  std::atomic<std::thread::id> runner_{};
  std::mutex grammars_mutex_;
  std::unique_ptr<GrammarCompiler> grammars_;
};

/// The right to run the engine; other threads wait for it. Taken without the interpreter's lock, which a hook function of the
/// running thread may need. Errors: UsageError for a run inside a function that a run of the same model calls.
class Running {
 public:
  explicit Running(Session& session);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  Session& session_;
};

}  // namespace vitrine::python
