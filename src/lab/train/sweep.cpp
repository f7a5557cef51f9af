#include "train/sweep.h"

#include <algorithm>
#include <cctype>

#include "io/yaml_layers.h"

namespace vitrine {
namespace {

constexpr size_t kMostRuns = 1000, kLongestName = 120;

// What a run sets, before its configuration is read.
struct Point {
  std::string name;
  std::vector<std::pair<std::string, YamlValue>> values;
};

// Of a folder: what file systems and shells take as it is.
std::string as_name(const std::string& text) {
  std::string name;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("._=,+-").find(c) != std::string_view::npos)
      name += c;
    else if (!name.ends_with('_'))
      name += '_';
  return name;
}

void add_values(Point& point, const std::vector<std::pair<std::string, YamlValue>>& values) {
  for (const auto& [key, value] : values) {
    point.name += (point.name.empty() ? "" : ",") + key + "=" + as_name(yaml_flow(value));
    point.values.emplace_back(key, value);
  }
}

Point point_of(const YamlValue& run) {
  Point point;
  std::vector<std::pair<std::string, YamlValue>> values;
  for (const auto& [key, value] : run.members())
    if (key != "name") values.emplace_back(key, value);
  add_values(point, values);
  if (const auto name = run.find("name")) {
    point.name = name->text();
    if (point.name.empty() || point.name.starts_with('.') || as_name(point.name) != point.name)
      name->fail("expected the name of a folder: letters, digits and . _ = , + -");
  }
  if (point.name.empty()) run.fail("it sets nothing, so it needs a name");
  return point;
}

std::vector<Point> points_of(const YamlValue& y) {
  y.allow(std::vector<std::string>{"runs", "product"});
  const auto runs = y.find("runs"), product = y.find("product");
  if (!runs && !product)
    y.fail("expected \"runs\", a list such as [{optimizer.lr: 1e-3}], or \"product\", such as {seed: [1, 2, 3]}");
  std::vector<Point> points;
  if (runs)
    for (const YamlValue& run : runs->items()) points.push_back(point_of(run));
  if (runs && points.empty()) runs->fail("expected a list of runs, such as [{optimizer.lr: 1e-3}]");
  if (!runs) points.emplace_back();
  if (!product) return points;
  for (const auto& [key, list] : product->members()) {
    const std::vector<YamlValue> values = list.items();
    if (!list.is_list() || values.empty()) list.fail("expected a list of values, such as [1e-3, 2e-3]");
    if (points.size() * values.size() > kMostRuns) list.fail("expected at most " + std::to_string(kMostRuns) + " runs");
    std::vector<Point> all;
    for (const Point& point : points)
      for (const YamlValue& value : values) add_values(all.emplace_back(point), {{key, value}});
    points = std::move(all);
  }
  return points;
}

}  // namespace

TrainSweep read_sweep(const std::string& config, std::span<const std::string> settings, const std::string& sweep) {
  const YamlValue base = read_yaml_layers(config, settings), y = YamlValue::read(sweep);
  TrainSweep all{base.at("out", "a folder for the runs of the sweep").text(), {}};
  for (const Point& point : points_of(y)) {
    SweptRun run;
    run.name = point.name;
    YamlValue own = base;
    for (const auto& [key, value] : point.values) {
      if (key == "out") value.fail("a sweep's runs have folders of their own in \"out\" of the configuration");
      own = own.merged_with(value.nested_in(key));
      run.values.emplace_back(key, yaml_flow(value));
    }
    for (const SweptRun& before : all.runs)
      if (before.name == run.name) y.fail("two runs are called \"" + run.name + "\". Give them a name: or other values");
    if (run.name.size() > kLongestName)
      y.fail("a run would be called \"" + run.name + "\", which is too long for a folder. Give it a shorter name:");
    own = own.merged_with(YamlValue::setting("out=" + yaml_quoted(all.folder + "/" + run.name), "out"));
    run.config = train_config(own, config);
    all.runs.push_back(std::move(run));
  }
  return all;
}

}  // namespace vitrine
