#pragma once
// A listener that keeps what it hears.
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ops/context.h"
#include "vitrine/float_vector.h"

namespace vitrine {

/// Whether `name` fits `glob`, in which * stands for any run of characters but a dot's neighbors stay themselves:
/// "blocks.*.attn.hook_q" fits every layer's; "*" fits everything.
bool fits(std::string_view glob, std::string_view name);

/// Whether the values of a hook are [head, query, key] (scores and patterns); those of all others have rows first.
inline bool heads_first(std::string_view hook) { return hook.ends_with("hook_attn_scores") || hook.ends_with("hook_pattern"); }

/// Which hooks to keep, and what of them: half-open ranges. heads cuts the second size of [rows, head, …] and the first of
/// [head, query, key]; positions cuts rows and queries.
struct HookRequest {
  struct Range {
    int64_t first = 0, end = std::numeric_limits<int64_t>::max();
    bool operator==(const Range&) const = default;
  };
  std::string glob;
  Range heads = {}, positions = {};
  bool whole() const { return heads == Range{} && positions == Range{}; }
};

/// Keeps the hooked values it is asked for, as f32: takes them where it can, and copies the others. A sequence that runs in
/// several steps (chunks, decode) gives one value per name: rows and queries are joined in order, and earlier queries' rows of a
/// pattern are filled with zeros for keys that came later.
class Recorder final : public Listener {
 public:
  struct Value {
    std::vector<int64_t> shape;
    FloatVector values;
  };

  /// Of several requests that a name fits, the one for that very name decides, else the first.
  explicit Recorder(const std::vector<HookRequest>& requests);
  bool wants(std::string_view name) const override;
  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override;
  bool takes() const override { return takes_; }

  /// By hook name.
  const std::map<std::string, Value, std::less<>>& values() const { return values_; }
  /// The same, handed over.
  std::map<std::string, Value, std::less<>> take_values() && { return std::move(values_); }
  /// Names in the order they were first heard.
  const std::vector<std::string>& order() const { return order_; }

 private:
  const HookRequest* request_for(std::string_view name) const;

  std::map<std::string, HookRequest, std::less<>> by_name_;
  std::vector<HookRequest> globs_;
  bool takes_ = false;
  std::map<std::string, Value, std::less<>> values_;
  std::map<std::string, int64_t, std::less<>> rows_heard_;
  std::vector<std::string> order_;
};

}  // namespace vitrine
