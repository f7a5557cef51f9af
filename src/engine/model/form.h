#pragma once
// Where a model's norms stand, whether its sub-layers add to the stream, and which of its parts it does without: what
// docs/trainability.md takes apart.
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
  bool residual = true;       // false: f(x) takes the place of x
  bool mlp = true;            // false: a layer is attention alone
  bool affine = true;         // false: norms have no scale and no shift; their weights are constants that change nothing
  bool positions = true;      // false: nothing tells one position from another, except the mask
  bool causal = true;         // false: every position sees every other
  bool rotary_value = false;  // values are rotated as queries and keys are
  bool operator==(const Form&) const = default;
  bool is_own() const { return *this == Form{}; }
  /// Whether every program computes the same from the checkpoint's tensors. Norms without scale and shift are ordinary norms
  /// whose weights happen to be 1 and 0.
  bool is_ordinary() const;
};

/// The form that a config.json asks for, by keys that no other program knows: "vitrine_norms": "off", "pre" or "post";
/// "vitrine_residual", "vitrine_mlp", "vitrine_affine", "vitrine_positions" and "vitrine_causal": false; "vitrine_rotary_value":
/// true. Errors: FileError for another value.
Form read_form(const ConfigReader& keys);

/// What a training configuration asks for; nothing, and an empty text: as the model has it.
struct FormChanges {
  std::string norms;  // "off", "pre" or "post"
  std::optional<bool> residual, mlp, affine, positions, causal, rotary_value;
  bool operator==(const FormChanges&) const = default;
  bool any() const { return *this != FormChanges{}; }
};

/// Sets what is asked for in a config.json. What the family does anyway is left unsaid, so that such a model is an ordinary one.
/// Errors: InputError, beginning with `where`, for a family that has a key of its own for this.
void set_form(Json& config, const FormChanges& changes, const std::string& where);

/// Errors: FileError, naming the key, for a form that means nothing for the model: positions or rotated values of a family that
/// has no such positions, a mask that its layers need, scale and shift of norms that are off.
void check_form(const Model& model, const Form& form, const ConfigReader& keys);

/// Errors: InputError if the model's sub-layers replace the stream instead of adding to it.
/// what: "The sum of parts", the beginning of the message; name: the model's.
void require_residual(const Model& model, const std::string& name, const std::string& what);

/// Errors: InputError if the model's layers have no MLP. what: as above.
void require_mlp(const Model& model, const std::string& name, const std::string& what);

/// The same as require_residual also for norms that were switched off or moved, and for layers without an MLP.
void require_family_form(const Model& model, const std::string& name, const std::string& what);

}  // namespace vitrine
