#pragma once
// The merge methods: one table, one line each.
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "merge/recipe.h"
#include "merge/tensor_inputs.h"

namespace vitrine {

/// Of what a parameter is a property.
enum class ParameterScope : uint8_t { shared, input, non_base };  // of the tensor; of each input; of each but the base

struct ParameterSpec {
  enum class Kind : uint8_t { number, whole, flag };
  const char* name;
  Kind kind;
  ParameterScope scope;
  std::optional<double> fallback = {};  // nothing: the recipe must say it
  const char* what;                     // one line for the reader
};

/// The parameters of one tensor, resolved.
class MethodParameters {
 public:
  double number(std::string_view name) const;
  bool flag(std::string_view name) const { return number(name) != 0; }
  /// One for each input; NaN for inputs that have none (the base, of a parameter of the others).
  const std::vector<double>& each(std::string_view name) const;

  std::map<std::string, double, std::less<>> shared;
  std::map<std::string, std::vector<double>, std::less<>> per_input;
};

/// What becomes of a tensor that some of the inputs lack, where the architecture allows that.
enum class IfMissing : uint8_t { refuse, copy_single, copy_single_base, copy_base_or_skip };

struct MergeMethod {
  const char* name;
  const char* title;  // as people write it
  const char* paper;  // address, or ""
  void (*merge)(TensorInputs& inputs, const MethodParameters& parameters);
  std::vector<ParameterSpec> parameters;
  enum class Base : uint8_t { ignored, optional, required } base = Base::ignored;
  size_t fewest = 1, most = 0;                // inputs, the base included; most 0: any number
  size_t fewest_others = 0, most_others = 0;  // inputs that are not the base; 0: any number
  IfMissing if_missing = IfMissing::refuse;
};

const std::vector<MergeMethod>& merge_methods();
/// Errors: UsageError beginning with `where`, with the method that was likely meant, and all of them.
const MergeMethod& find_merge_method(std::string_view name, const std::string& where);

}  // namespace vitrine
