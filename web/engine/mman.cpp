// Maps of memory on WebAssembly (include/sys/mman.h).
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

void* mmap(void*, size_t size, int, int flags, int file, off_t offset) {
  constexpr size_t kPage = 4096;
  if (size > SIZE_MAX - kPage) return MAP_FAILED;
  void* const memory = std::aligned_alloc(kPage, (size + kPage - 1) / kPage * kPage);
  if (memory == nullptr) return MAP_FAILED;
  for (size_t done = 0; (flags & MAP_ANONYMOUS) == 0 && done < size;) {
    const ssize_t got = ::pread(file, static_cast<char*>(memory) + done, size - done, offset + static_cast<off_t>(done));
    if (got <= 0) {
      std::free(memory);
      return MAP_FAILED;
    }
    done += static_cast<size_t>(got);
  }
  return memory;
}

int munmap(void* address, size_t) {
  std::free(address);
  return 0;
}
