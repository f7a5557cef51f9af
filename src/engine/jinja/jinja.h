#pragma once
// Chat templates: the part of Jinja 3.1 that the templates of open models use, with the settings and functions Hugging Face
// gives them (trim_blocks, lstrip_blocks, break and continue, the generation tag, tojson as json.dumps, raise_exception,
// strftime_now, an immutable sandbox). A template comes with a model and is not trusted: it cannot touch anything but its
// variables, and its work, memory and nesting are bounded.
//
// What differs from the reference: integers have 64 bits; unknown filters are reported when they are reached; include, extends,
// import, block, autoescape and recursive loops are refused by name; so are the filters filesizeformat, pprint, random,
// striptags, urlencode, urlize, wordwrap and xmlattr.
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "jinja/meter.h"
#include "jinja/text.h"

namespace vitrine {

/// A text and the parts of it, rising and disjoint, that came from the untrusted variables. A control token that lies wholly
/// inside one part was typed by somebody and must be read as text.
struct Rendered {
  std::string text;
  std::vector<TextSpan> input;
  /// What {% generation %} blocks wrote, rising and disjoint: the assistant's turns, where a template marks them.
  std::vector<TextSpan> generated = {};
};

struct RenderOptions {
  jinja::Limits limits = {};
  std::optional<std::tm> now = {};  // what strftime_now() tells; default: the local time
  bool strict = false;              // a name, attribute or element that is missing is an error, whatever would be done with it
};

class Template {
 public:
  /// Reads the template. `name` stands in messages ("chat template of gemma").
  /// Errors: InputError with the line and what was expected there.
  explicit Template(const std::string& source, std::string name = "chat template");
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  /// Renders with the variables of two objects: texts in `input` are what others wrote (messages), texts in `trusted` are the
  /// caller's own (bos_token). A name in both is taken from `trusted`. May run on several threads at once.
  /// Errors: InputError with the line, for a mistake in the template, for raise_exception() with its message, for limits.
  Rendered render(const OrderedJson& input, const OrderedJson& trusted = OrderedJson::object(),
                  const RenderOptions& options = {}) const;

 private:
  struct Parsed;
  std::unique_ptr<const Parsed> parsed_;
  std::string name_;
};

}  // namespace vitrine
