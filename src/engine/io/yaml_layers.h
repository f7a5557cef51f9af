#pragma once
// Configurations in layers: a file, the files that it extends, and settings from the command line.
#include <span>
#include <string>

#include "io/yaml_reader.h"

namespace vitrine {

/// The object in a file. Where it has the key "extends", the path of another file relative to its own folder, it is merged over
/// that file's (YamlValue::merged_with), which may extend another. Then each of `settings` ("optimizer.lr=1e-3") is merged over
/// the result. "extends" is not in it.
/// Errors: FileError as YamlValue::read; for a file that extends itself, or is the 17th of a chain; for a bad setting.
YamlValue read_yaml_layers(const std::string& path, std::span<const std::string> settings = {});

/// A value as YAML that reads back as the same, on one line.
std::string yaml_flow(const YamlValue& value);
/// The same with a line for each key: objects in block style, lists in flow style.
std::string yaml_text(const YamlValue& value);

}  // namespace vitrine
