#pragma once
// Regular expressions found in tokenizer files. They are written for Oniguruma (Ruby's syntax); here PCRE2 runs them,
// after the spots where the two differ have been rewritten.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace vitrine {

class Regex {
 public:
  /// `where` names the file and `field` the place in it. Errors: FileError with PCRE2's own words and the position.
  Regex(std::string_view pattern, const std::string& where, const std::string& field);

  /// Calls visit(begin, end) for every match that is not empty, from left to right; with `empty` for empty ones as well, except
  /// where the match before ends. `subject` must be valid UTF-8.
  /// Errors: FileError when one match takes more steps or memory than the limits allow, or all of them together more
  /// processor time than a second and five more for each megabyte (50 times what the families' patterns need): patterns that look
  /// ahead to the end for every match would otherwise block a server for hours.
  template <class Visit>
  void each_match(std::string_view subject, Visit&& visit, bool empty = false) const {
    Match match(*this, subject);
    while (match.next())
      if (empty || match.end > match.begin) visit(match.begin, match.end);
  }

 private:
  class Match {
   public:
    Match(const Regex& regex, std::string_view subject);
    ~Match();
    Match(const Match&) = delete;
    Match& operator=(const Match&) = delete;
    bool next();
    size_t begin = 0, end = 0;

   private:
    const Regex& regex_;
    std::string_view subject_;
    void check_time();
    size_t from_ = 0, count_ = 0;
    size_t last_end_ = SIZE_MAX;  // of the match before
    double started_ = -1;         // processor seconds of this thread
    void *data_, *context_;
  };

  std::string pattern_, where_, field_;
  std::shared_ptr<void> code_;  // pcre2_code; PCRE2's types stay out of this header
};

/// An expression for messages: a long one's beginning.
std::string shown_regex(std::string_view pattern);

/// The same expression in PCRE2's syntax: \s, \w, \d, \h, \u, \v, properties and POSIX classes by Oniguruma's meaning and version
/// of Unicode, characters written as the bytes of their UTF-8 (\xE3\x81\x82), nested sets and && in classes, {,n}, {n}? as an
/// optional {n}, {n,m}+ as a repeated repetition, (?m) for a dot that takes newlines, (?i) up to the end of its group. Known gap:
/// with (?i) the two fold case alike for single characters outside of sets only. `where` and `field` are for messages.
std::string oniguruma_to_pcre2(std::string_view pattern, const std::string& where, const std::string& field);

}  // namespace vitrine
