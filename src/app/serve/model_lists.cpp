#include "serve/model_lists.h"

namespace vitrine::serve {

std::vector<ServedModel> only(Service& service) {
  std::vector<ServedModel> list(1);
  list[0].name = service.name();
  list[0].service = std::shared_ptr<Service>(&service, [](Service*) {});
  return list;
}

}  // namespace vitrine::serve
