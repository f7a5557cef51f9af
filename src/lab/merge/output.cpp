#include "merge/output.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/error.h"
#include "io/yaml_reader.h"
#include "jinja/jinja.h"
#include "merge/chat_templates.h"
#include "runtime/model_tokenizer.h"

namespace vitrine {
namespace {

Companions companions_of_input(const MergeInput& input) {
  return input.opened() != nullptr ? companions_of(*input.opened()) : companions_in(input.files());
}

std::string template_in(const Companions& files) {
  if (const auto found = files.find("chat_template.jinja"); found != files.end()) return found->second;
  const auto found = files.find("tokenizer_config.json");
  if (found == files.end()) return "";
  const Json config = parse_json(found->second, "tokenizer_config.json");
  const auto chat = config.find("chat_template");
  if (chat == config.end()) return "";
  if (chat->is_string()) return chat->get<std::string>();
  if (chat->is_array())
    for (const Json& one : *chat)
      if (one.is_object() && one.value("name", Json("")) == "default" && one.contains("template") && one["template"].is_string())
        return one["template"].get<std::string>();
  return "";
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string commonest_template(const MergePlan& plan) {
  std::vector<std::pair<std::string, int>> counts;  // the first among equals wins
  for (const auto& input : plan.inputs) {
    const std::string text = trimmed(template_in(companions_of_input(*input)));
    if (text.empty()) continue;
    const auto known = std::find_if(counts.begin(), counts.end(), [&](const auto& one) { return one.first == text; });
    if (known == counts.end()) {
      counts.emplace_back(text, 1);
    } else {
      ++known->second;
    }
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? "" : most->first;
}

void set_template(Companions& files, const std::string& text) {
  files["chat_template.jinja"] = text;
  const auto found = files.find("tokenizer_config.json");
  if (found == files.end()) return;
  Json config = parse_json(found->second, "tokenizer_config.json");
  if (!config.is_object() || !config.contains("chat_template")) return;
  config["chat_template"] = text;
  found->second = config.dump(2) + "\n";
}

// What others may know a model by: an id of the hub, also of a folder in its cache; else the last part of the path. The merge of
// a file that another one uses has the name that the file gives it.
std::string public_name(const std::string& model) {
  std::error_code error;
  if (!std::filesystem::exists(model, error)) return model;
  std::filesystem::path path = std::filesystem::path(model).lexically_normal();
  if (path.filename() == "." || path.filename() == "..") path = std::filesystem::canonical(path, error);
  if (!path.has_filename()) path = path.parent_path();
  const std::string kept = path.parent_path().parent_path().filename().string(), prefix = "models--";
  if (path.parent_path().filename() == "snapshots" && kept.starts_with(prefix)) {
    std::string id = kept.substr(prefix.size());
    if (const size_t dashes = id.find("--"); dashes != std::string::npos) id.replace(dashes, 2, "/");
    return id;
  }
  return path.filename().string();
}

// The list of the card's front matter.
std::string base_models(const MergePlan& plan) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& model) {
    const std::string name = public_name(model);
    if (!model.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const auto& input : plan.inputs) {
    add(input->reference().path);
    add(input->reference().adapter);
  }
  std::string list;
  for (const std::string& name : names) list += "- " + yaml_quoted(name) + "\n";
  return list;
}

std::string model_card(const MergePlan& plan, const std::string& title) {
  const auto quoted = [](const std::string& name) { return "`" + name + "`"; };
  std::string card = "---\nbase_model:\n" + base_models(plan) +
                     "library_name: transformers\ntags:\n- merge\n- mergekit\n---\n# " + title +
                     "\n\nA merge of language models, made with vitrine.\n\n## Method\n\n";
  const MergeMethod& method = *plan.method;
  card += *method.paper == '\0' ? method.title : "[" + std::string(method.title) + "](" + method.paper + ")";
  if (plan.recipe.base_model && method.base != MergeMethod::Base::ignored)
    card += ", from " + quoted(plan.recipe.base_model->text());
  card += "\n\n## Models\n\n";
  for (const auto& input : plan.inputs) card += "- " + quoted(input->name()) + "\n";
  std::string fence = "```";
  while (plan.recipe.yaml.find(fence) != std::string::npos) fence += '`';
  return card + "\n## Recipe\n\n" + fence + "yaml\n" + plan.recipe.yaml + (plan.recipe.yaml.ends_with('\n') ? "" : "\n") + fence +
         "\n";
}

}  // namespace

std::string merged_chat_template(const MergePlan& plan) {
  const std::string& wanted = plan.recipe.chat_template;
  if (wanted.empty()) return "";
  if (wanted == "auto") return commonest_template(plan);
  for (const NamedTemplate& known : named_templates())
    if (wanted == known.name) return known.text;
  if (wanted.find('{') == std::string::npos) {
    std::string names;
    for (const NamedTemplate& known : named_templates()) names += std::string(", ") + known.name;
    throw UsageError(plan.recipe.path + ": \"chat_template\" is \"" + wanted + "\"; expected auto" + names +
                     " or a template in Jinja");
  }
  static_cast<void>(Template(wanted, plan.recipe.path + ": \"chat_template\""));
  return wanted;
}

std::map<std::string, std::string> merge_companions(const MergePlan& plan, const std::string& title) {
  Companions files;
  const std::string chat = merged_chat_template(plan);
  if (plan.tokens) {
    files = plan.tokens->files;
  } else if (plan.options.copy_tokenizer) {
    files = companions_of_input(*plan.inputs[plan.donor]);
  }
  if (!chat.empty()) set_template(files, chat);
  if (plan.options.write_model_card) {
    files["README.md"] = model_card(plan, title);
    files["mergekit_config.yml"] = plan.recipe.yaml;
  }
  return files;
}

}  // namespace vitrine
