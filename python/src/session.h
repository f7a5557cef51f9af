#pragma once
// An opened model as Python holds it: one run at a time, and never one inside another.
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "edited_weights.h"
#include "grammar/grammar.h"
#include "hooks/spliced_model.h"
#include "runtime/engine.h"

namespace vitrine::python {

/// Shared by everything that reads the model's memory: weights seen as arrays, tokenizer, streams.
class Session {
 public:
  explicit Session(std::unique_ptr<Engine> made) : engine(*made), owned_(std::move(made)) {}
  Engine& engine;
  EditedWeights edited;

  /// The model of the files, whatever runs go through.
  const Model& base() const { return *engine.opened().model; }
  /// What the calling thread's runs go through from now on; null: the model of the files.
  void splice(std::shared_ptr<const SplicedModel> spliced);
  std::shared_ptr<const SplicedModel> spliced() const;
  /// The model with the hooks of the calling thread's runs.
  const Model& model() const;

  /// Errors: as GrammarCompiler and its compile(). The vocabulary is read once.
  std::shared_ptr<const Constraint> compile(const Grammar& grammar) {
    const std::lock_guard lock(grammars_mutex_);
    if (grammars_ == nullptr) grammars_ = std::make_unique<GrammarCompiler>(engine.tokenizer(), engine.shape().vocab_size);
    return grammars_->compile(grammar);
  }

 private:
  friend class Running;
  friend class ReadingWeights;
  friend class ChangingWeights;
  std::unique_ptr<Engine> owned_;
  std::mutex mutex_;
  std::atomic<std::thread::id> runner_{};
  std::shared_mutex weights_mutex_;  // taken after mutex_
  mutable std::mutex spliced_mutex_;
  std::map<std::thread::id, std::shared_ptr<const SplicedModel>> spliced_;
  std::mutex grammars_mutex_;
  std::unique_ptr<GrammarCompiler> grammars_;
};

/// The right to run the engine; other threads wait for it. Taken without the interpreter's lock, which a hook function of the
/// running thread may need. Errors: UsageError for a run inside a function that a run of the same model calls.
class Running {
 public:
  explicit Running(Session& session) : Running(session, session.spliced()) {}
  /// Through that model instead of the calling thread's.
  Running(Session& session, std::shared_ptr<const SplicedModel> spliced);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  Session& session_;
  std::shared_ptr<const SplicedModel> spliced_;
};

/// The right to read the weights outside of runs: nobody changes them meanwhile. Taken without the interpreter's lock, and once
/// by a thread. A thread that runs the model, or changes its weights, has it already.
class ReadingWeights {
 public:
  explicit ReadingWeights(Session& session);

 private:
  std::shared_lock<std::shared_mutex> lock_;
};

/// The right to change the weights: no run takes place meanwhile, and nobody reads them. Taken as Running, and let go by the
/// thread that took it.
class ChangingWeights {
 public:
  explicit ChangingWeights(Session& session) : running_(session), lock_(session.weights_mutex_) {}

 private:
  Running running_;
  std::unique_lock<std::shared_mutex> lock_;
};

}  // namespace vitrine::python
