#pragma once
// What the table of pictures knows of each. Each chapter of the book lists its own pictures in a file of its own (next_word.cpp);
// document.cpp joins the lists.
#include <cstdint>
#include <span>

#include "picture/data/document.h"
#include "picture/data/observe.h"

namespace vitrine {

// Where a picture's numbers come from: this run, the model alone, a toy that shows a principle, logs of training runs.
// kToy | kRun: both.
inline constexpr uint32_t kRun = 1, kModel = 2, kToy = 4, kLog = 8;
inline constexpr bool kWide = true;

struct PictureEntry {
  PictureInfo info;
  uint32_t needs;                // of the observed run: kNeed… of observe.h
  PictureJson (*data)(Studio&);  // present(…) with the picture's own fields, tables and charts, or absent(…)
  uint32_t made = kRun;
  bool wide = false;  // on the page; the data may say otherwise
};

/// In the order of the book, a picture that several chapters show with the first of them.
std::span<const PictureEntry> next_word_pictures();
std::span<const PictureEntry> heads_pictures();

}  // namespace vitrine
