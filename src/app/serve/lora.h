#pragma once
// Which adapters a request runs with.
#include "requests/fields.h"
#include "serve/service.h"

namespace vitrine::serve {

/// The field lora.
const std::vector<Field>& lora_fields();

/// What `lora` lists, by id or name; else the adapter that `model` names, whole; else those of requests that choose none.
/// Errors: ApiError 400 naming the field and what is wrong with it, for an unknown adapter and one that is listed twice, and for
/// `lora` beside a model that is an adapter.
ScaledAdapters read_adapters(const Fields& fields, const Service& service);

/// While it lives, all runs of the engine have these adapters.
class Adapted {
 public:
  Adapted(Engine& engine, const ScaledAdapters& adapters) : engine_(engine) { engine_.adapt(adapters); }
  ~Adapted() { engine_.adapt({}); }
  Adapted(const Adapted&) = delete;
  Adapted& operator=(const Adapted&) = delete;

 private:
  Engine& engine_;
};

}  // namespace vitrine::serve
