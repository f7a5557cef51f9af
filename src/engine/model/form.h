#pragma once
// Where a model's norms stand and whether its sub-layers add to the stream: what docs/trainability.md takes apart.
#include <optional>
#include <string>

#include "base/json.h"
#include "io/config_reader.h"

namespace vitrine {

class Model;

struct Form {
  enum class Norms : uint8_t {
    own,   // as the family has them
    pre,   // x + f(norm(x))
    post,  // norm(x + f(x)); the final norm stays
    off,   // x + f(x), and no final norm
  };
  Norms norms = Norms::own;
  bool residual = true;  // false: f(x) takes the place of x
  bool is_own() const { return norms == Norms::own && residual; }
};

/// The form that a config.json asks for, by keys that no other program knows: "vitrine_norms": "off", "pre" or "post", and
/// "vitrine_residual": false. Errors: FileError for another value.
Form read_form(const ConfigReader& keys);

/// Sets what is asked for in a config.json: norms "off", "pre" or "post" (empty: as it is) and residual connections (nothing: as
/// it is). What the family does anyway is left unsaid, so that such a model is an ordinary one.
/// Errors: InputError, beginning with `where`, for a family that has a key of its own for this.
void set_form(Json& config, const std::string& norms, std::optional<bool> residual, const std::string& where);

/// Errors: InputError if the model's sub-layers replace the stream instead of adding to it.
/// what: "The sum of parts", the beginning of the message; name: the model's.
void require_residual(const Model& model, const std::string& name, const std::string& what);

/// The same also for norms that were switched off or moved.
void require_family_form(const Model& model, const std::string& name, const std::string& what);

}  // namespace vitrine
