#include <vitrine/version.h>

#include <cstdio>
#include <cstring>

int main() {
  std::printf("vitrine %s\n", vitrine::version());
  return std::strcmp(vitrine::version(), VITRINE_VERSION) == 0 ? 0 : 1;
}
