#include "jinja/jinja.h"

#include "base/error.h"
#include "jinja/interpreter.h"
#include "jinja/parser.h"

namespace vitrine {

struct Template::Parsed {
  jinja::Body body;
};

Template::Template(const std::string& source, std::string name) : name_(std::move(name)) {
  try {
    parsed_ = std::make_unique<const Parsed>(Parsed{jinja::parse(source)});
  } catch (const jinja::SyntaxProblem& problem) {
    throw InputError(name_ + ", line " + std::to_string(problem.line) + ": " + problem.text);
  }
}

Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Rendered Template::render(const OrderedJson& input, const OrderedJson& trusted, const RenderOptions& options) const {
  std::tm now{};
  if (options.now) {
    now = *options.now;
  } else {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &now);
  }
  jinja::Interpreter interpreter(options.limits, now, options.strict);
  try {
    for (const auto& [name, value] : input.items()) interpreter.define(name, jinja::from_json(interpreter.meter(), value, true));
    for (const auto& [name, value] : trusted.items())
      interpreter.define(name, jinja::from_json(interpreter.meter(), value, false));
    const jinja::Text text = interpreter.run(parsed_->body);
    return {text.bytes(), text.input(), interpreter.generated()};
  } catch (const jinja::Problem& problem) {
    throw InputError(name_ + ", line " + std::to_string(interpreter.line()) + ": " + problem.text);
  } catch (const jinja::Refusal& refusal) {
    throw InputError(name_ + ", line " + std::to_string(interpreter.line()) + ", refuses the conversation: " + refusal.message);
  }
}

}  // namespace vitrine
