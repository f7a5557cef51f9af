#include "picture/page/live_page.h"

#include "base/error.h"
#include "base/memory.h"
#include "io/gzip.h"
#include "picture/data/values.h"
#include "picture/page/embedded.h"
#include "picture/page/page_of.h"
#include "picture/page/printable.h"

namespace vitrine {
namespace {

std::string element(const std::string& id, const std::string& attributes, std::string_view bytes) {
  return "<script id=\"" + id + "\" type=\"text/plain\"" + attributes + ">" + printable(std::as_bytes(std::span(bytes))) +
         "</script>\n";
}

}  // namespace

std::string live_page(const PictureJson& document, std::span<const std::byte> weights, const std::string& name) {
  if (weights.size() > kMostLiveWeights)
    throw UsageError("the weights take " + bytes_text(static_cast<double>(weights.size())) + ", and a live page holds at most " +
                     bytes_text(static_cast<double>(kMostLiveWeights)) +
                     ". Take a smaller model or type, or leave --live out: the page then shows this run alone");
  const std::string_view engine = embedded_engine();
  if (engine.empty())
    throw RunError(
        "this build has no web/dist/engine.wasm, the engine of live pages. Build it with web/engine/build.sh, and "
        "vitrine again; `vitrine explain` works without --live");
  PageParts parts = explain_parts(document);
  parts.elements = element("vitrine-engine", "", engine) +
                   element("vitrine-weights", " data-name=\"" + markup_text(name) + "\"", gzip(weights));
  parts.scripts = " 'wasm-unsafe-eval' blob:; worker-src blob:";
  return page_of(document, parts);
}

}  // namespace vitrine
