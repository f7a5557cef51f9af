// The offline pages: the built script and style, the document, and what a reader without scripts sees.
#include "picture/page/page.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/plural.h"
#include "picture/data/view.h"
#include "picture/page/embedded.h"
#include "picture/page/page_of.h"
#include "picture/svg/opening.h"

namespace vitrine {
namespace {

// A script's or style's own text must not end its element.
std::string_view checked(std::string_view name, std::string_view closing) {
  const std::string_view text = embedded_text(name);
  if (text.empty())
    throw RunError("this build has no " + std::string(name) +
                   ", the page's built bundle. Build the page in web/ (npm ci && npm run build) and vitrine again; `vitrine "
                   "picture` works without");
  if (text.find(closing) != std::string_view::npos)
    throw RunError(std::string(name) + " holds \"" + std::string(closing) + "\", which would end it inside a page");
  return text;
}

}  // namespace

std::string page_of(const PictureJson& document, const PageParts& parts) {
  const std::string_view script = checked("web/dist/page.js", "</script"), style = checked("web/dist/page.css", "</style");
  const std::string title = markup_text(parts.title), plain = markup_text(parts.plain);
  std::string page =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'" +
      parts.scripts +
      "; style-src 'unsafe-inline'; img-src data:\">\n"
      "<title>" +
      title + "</title>\n<meta property=\"og:type\" content=\"article\">\n<meta property=\"og:title\" content=\"" + title +
      "\">\n<meta property=\"og:description\" content=\"" + plain + "\">\n<meta name=\"description\" content=\"" + plain +
      "\">\n<style>";
  page += style;
  page += "</style>\n</head>\n<body>\n<div id=\"vitrine\"><noscript><h1>" + title + "</h1><p>" + plain + " The " +
          (parts.still.empty() ? "" : "other ") + "pictures of this page need scripts, which your browser has switched off.</p>" +
          parts.still +
          "</noscript></div>\n"
          "<script id=\"vitrine-data\" type=\"application/json\">";
  page += script_json(document);
  page += "</script>\n" + parts.elements;
  page += "<script>window.vitrine = JSON.parse(document.getElementById(\"vitrine-data\").textContent)</script>\n<script>";
  page += script;
  page += "</script>\n</body>\n</html>\n";
  return page;
}

PageParts explain_parts(const PictureJson& document) {
  const PictureJson& prompt = document.at("prompt").at("text");
  const std::string shown = prompt.is_null() ? "token ids" : "“" + prompt.get<std::string>() + "”";
  std::string plain;
  if (const PictureJson* next = available(document.at("pictures"), "next-tokens"))
    plain = with_spaces(next->at("alt").get<std::string>());
  const PictureJson& model = document.at("model");
  const auto parameters = model.at("parameters").get<int64_t>();
  const std::string size = parameters >= 1'000'000 ? fmt::format("{:.3g} million", static_cast<double>(parameters) / 1e6)
                                                   : fmt::format("{}", parameters);
  return {fmt::format("{} through a model of {} parameters with the {} architecture", shown, size,
                      model.at("familyTitle").get<std::string>()),
          plain,
          {},
          {},
          opening_svg(document).value_or("")};
}

std::string explain_page(const PictureJson& document) { return page_of(document, explain_parts(document)); }

std::string study_page(const PictureJson& document) {
  std::string plain;
  for (const PictureJson& line : document.at("lines")) plain += (plain.empty() ? "" : " ") + line.get<std::string>();
  return page_of(document, {document.at("title").get<std::string>(), plain, {}, {}, {}});
}

std::string merge_report_page(const MergeReport& report) {
  const PictureJson document = merge_report_json(report);
  std::string inputs;
  for (const std::string& input : report.inputs) inputs += (inputs.empty() ? "" : ", ") + input;
  return page_of(document, {document.at("title").get<std::string>(),
                            fmt::format("{} of {}: {}.", document.at("methodTitle").get<std::string>(), inputs,
                                        plural(report.tensors.size(), "tensor")),
                            {},
                            {},
                            {}});
}

}  // namespace vitrine
