#include "picture/page/book_page.h"

#include "jinja/jinja.h"
#include "picture/page/embedded.h"

namespace vitrine {

std::string book_page(const PictureJson& values) {
  constexpr char kName[] = "src/app/picture/page/book/index.html.jinja";
  return Template(std::string(embedded_text(kName)), kName).render(values, PictureJson::object(), {.strict = true}).text;
}

}  // namespace vitrine
