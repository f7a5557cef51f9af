#pragma once
// Chat templates that a recipe may call by name, as mergekit's does.
#include <span>

namespace vitrine {

struct NamedTemplate {
  const char* name;
  const char* text;  // Jinja
};
std::span<const NamedTemplate> named_templates();

}  // namespace vitrine
