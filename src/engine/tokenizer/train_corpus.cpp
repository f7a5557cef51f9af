#include "tokenizer/train_corpus.h"

namespace vitrine {

void TrainCorpus::begin_word(uint64_t count) {
  if (runs_.empty() || runs_.back().count != count) runs_.push_back({uint32_t(slots_.size()), count});
  slots_.push_back(kEdge);
}

void TrainCorpus::finish() {
  slots_.push_back(kEdge);
  run_of_block_.clear();
  size_t run = 0;
  for (size_t at = 0; at < slots_.size(); at += kBlock) {
    while (run + 1 < runs_.size() && runs_[run + 1].begin <= at) ++run;
    run_of_block_.push_back(uint32_t(run));
  }
}

}  // namespace vitrine
