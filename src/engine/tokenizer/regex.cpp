#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "base/utf8.h"

namespace vitrine {
namespace {
std::string pcre2_message(int code) {
  char text[256] = "";
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
  return text;
}

// A place in a translated expression, with what stands around it.
std::string place(std::string_view translated, size_t at) {
  if (translated.size() <= 80) return fmt::format("{} of {}", at, translated);
  const size_t begin = at - std::min<size_t>(at, 40);
  std::string around(translated.substr(begin, 80));
  for (char& c : around)
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  return fmt::format("…{}…", around);
}
}  // namespace

Regex::Regex(std::string_view pattern, const std::string& where, const std::string& field)
    : pattern_(pattern), where_(where), field_(field) {
  const std::string translated = oniguruma_to_pcre2(pattern, where, field);
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(pcre2_compile_context_create(nullptr),
                                                                                         pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  pcre2_set_max_pattern_length(context.get(), 1 << 16);
  int error = 0;
  PCRE2_SIZE at = 0;
  // Ruby's ^ and $ always stand for the ends of lines.
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at, context.get());
  if (code == nullptr)
    throw FileError(where, fmt::format("{}: the regular expression {} cannot be used: {} (at {})", field, shown_regex(pattern_),
                                       pcre2_message(error), place(translated, at)));
  code_ = std::shared_ptr<void>(code, [](void* c) { pcre2_code_free(static_cast<pcre2_code*>(c)); });
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where it fails the interpreter does the same work, slower
}

Regex::Match::Match(const Regex& regex, std::string_view subject) : regex_(regex), subject_(subject) {
  const auto* code = static_cast<const pcre2_code*>(regex.code_.get());
  data_ = pcre2_match_data_create_from_pattern(code, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(context, 10'000'000);
  pcre2_set_heap_limit(context, 512 * 1024);  // KiB, for the interpreter
  context_ = context;
}

Regex::Match::~Match() {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(data_));
  pcre2_match_context_free(static_cast<pcre2_match_context*>(context_));
}

void Regex::Match::check_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  const double seconds = double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
  if (started_ < 0) started_ = seconds;
  const double limit = 1 + 5 * double(subject_.size()) / 1e6;
  if (seconds - started_ > limit)
    throw FileError(regex_.where_,
                    fmt::format("{}: the regular expression {} has taken {:.0f} seconds for {} of {} bytes of a text and is "
                                "stopped",
                                regex_.field_, shown_regex(regex_.pattern_), seconds - started_, from_, subject_.size()));
}

bool Regex::Match::next() {
  const auto* code = static_cast<const pcre2_code*>(regex_.code_.get());
  auto* data = static_cast<pcre2_match_data*>(data_);
  auto* context = static_cast<pcre2_match_context*>(context_);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(subject_.data());
  while (from_ <= subject_.size()) {
    int rc = pcre2_match(code, subject, subject_.size(), from_, PCRE2_NO_UTF_CHECK, data, context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter keeps its stack on the heap
      rc = pcre2_match(code, subject, subject_.size(), from_, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, context);
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc < 0)
      throw FileError(regex_.where_,
                      fmt::format("{}: the regular expression {} fails at byte {} of a text of {} bytes: {}; it takes too "
                                  "many steps on this text",
                                  regex_.field_, shown_regex(regex_.pattern_), from_, subject_.size(), pcre2_message(rc)));
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(data);
    begin = span[0], end = span[1];
    if (++count_ % 1024 == 0) check_time();
    // \K may put begin anywhere; a match in reverse is none. An empty one does not count where the match before ends.
    if (end > begin || (end == begin && end >= from_ && end != last_end_)) {
      from_ = last_end_ = end;
      return true;
    }
    from_ = std::max(from_, end);
    from_ += from_ < subject_.size() ? utf8_at(subject_, from_).size : 1;
  }
  return false;
}

}  // namespace vitrine
