// Maps of memory on WebAssembly (include/sys/mman.h): pages at the end of the module's memory, which cost nothing until they are
// touched. What is given back is kept for the next map that fits in; the module's memory never shrinks.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <map>

namespace {

constexpr size_t kPage = 65536;

std::multimap<size_t, void*>& given_back() {
  static std::multimap<size_t, void*> maps;  // by size
  return maps;
}

size_t whole_pages(size_t size) { return (size + kPage - 1) / kPage * kPage; }

void* pages(size_t size) {
  auto& free = given_back();
  if (const auto found = free.lower_bound(size); found != free.end()) {
    const auto [room, at] = *found;
    free.erase(found);
    if (room > size) free.emplace(room - size, static_cast<char*>(at) + size);
    return at;
  }
  const size_t before = __builtin_wasm_memory_grow(0, size / kPage);
  return before == SIZE_MAX ? MAP_FAILED : reinterpret_cast<void*>(before * kPage);
}

}  // namespace

void* mmap(void*, size_t size, int, int flags, int file, off_t offset) {
  if (size == 0 || size > SIZE_MAX - kPage) return MAP_FAILED;
  void* const memory = pages(whole_pages(size));
  if (memory == MAP_FAILED) return MAP_FAILED;
  for (size_t done = 0; (flags & MAP_ANONYMOUS) == 0 && done < size;) {
    const ssize_t got = ::pread(file, static_cast<char*>(memory) + done, size - done, offset + static_cast<off_t>(done));
    if (got <= 0) {
      munmap(memory, size);
      return MAP_FAILED;
    }
    done += static_cast<size_t>(got);
  }
  return memory;
}

int munmap(void* address, size_t size) {
  given_back().emplace(whole_pages(size), address);
  return 0;
}
