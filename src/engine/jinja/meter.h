#pragma once
// What a template may use up. Templates come with models and are hostile input: loops, recursion and strings that double are
// all bounded by counters here, with a named error instead of a hanging or dying process.
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace vitrine::jinja {

/// Something a template did wrong. The interpreter adds the line.
struct Problem : std::exception {
  explicit Problem(std::string what_is_wrong) : text(std::move(what_is_wrong)) {}
  const char* what() const noexcept override { return text.c_str(); }
  std::string text;
};

struct Limits {
  uint64_t work = uint64_t{1} << 31;           // 64 for each evaluated node, 1 for each byte looked at or made
  uint64_t made_bytes = uint64_t{512} << 20;   // all strings and lists ever made
  uint64_t string_bytes = uint64_t{64} << 20;  // one string, the output among them
  int depth = 600;                             // nested evaluations
};

class Meter {
 public:
  explicit Meter(const Limits& limits) : limits_(limits) {}

  /// One node evaluated, one element visited.
  void step(uint64_t count = 1) { work(64 * count); }
  /// Bytes read.
  void look(size_t bytes) { work(bytes); }
  /// Bytes made. Call it before making them.
  void make(size_t bytes) {
    if (bytes > limits_.made_bytes - made_)
      throw Problem("the template makes more than " + std::to_string(limits_.made_bytes) + " bytes of text and lists");
    made_ += bytes;
    work(bytes);
  }
  /// As make(), for one string of this length.
  void make_string(size_t bytes) {
    check_string(bytes);
    make(bytes + 96);  // the object around the bytes
  }
  void check_string(size_t bytes) const {
    if (bytes > limits_.string_bytes)
      throw Problem("the template makes a text longer than " + std::to_string(limits_.string_bytes) + " bytes");
  }

  /// One level of nesting, while it lives.
  class Level {
   public:
    explicit Level(Meter& meter) : meter_(meter) {
      if (++meter_.depth_ > meter_.limits_.depth) {
        --meter_.depth_;
        throw Problem("the template nests deeper than " + std::to_string(meter_.limits_.depth) + " levels");
      }
    }
    ~Level() { --meter_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Meter& meter_;
  };

 private:
  void work(uint64_t units) {
    if (units > limits_.work - worked_)
      throw Problem("the template takes too many steps; does one of its loops run over far too much?");
    worked_ += units;
  }

  Limits limits_;
  uint64_t worked_ = 0, made_ = 0;
  int depth_ = 0;
};

}  // namespace vitrine::jinja
