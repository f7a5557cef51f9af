#include "tensor/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#define VITRINE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VITRINE_ASAN 1
#endif
#endif
#ifdef VITRINE_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace vitrine {
namespace {

// How much memory is taken at once, and what is reserved at least. The sanitizer writes notes about all that is taken, and tests
// make many arenas.
#ifdef __wasm__
constexpr size_t kSmallest = size_t{32} << 20;
#else
constexpr size_t kSmallest = size_t{1} << 30;
#endif
#if defined(VITRINE_ASAN) || defined(__wasm__)
constexpr size_t kStep = size_t{1} << 20;
#else
constexpr size_t kStep = size_t{64} << 20;
#endif

}  // namespace

Arena::Arena(size_t reserve_bytes) {
  for (size_t size = std::max(reserve_bytes, kSmallest); size >= kSmallest; size /= 2) {  // a shell's limit may be lower
    void* base = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) continue;
    base_ = static_cast<char*>(base);
    reserved_ = size;
    ::madvise(base_, size, MADV_HUGEPAGE);  // advice: a kernel without huge pages refuses it and all goes on
    return;
  }
  throw RunError("cannot reserve address space for activations; is there a limit (ulimit -v)?");
}

// On 64-bit systems no user memory lies at this address or beyond it.
Arena::Arena(Nowhere)
    : base_(std::bit_cast<char*>(static_cast<uintptr_t>(uint64_t{1} << (sizeof(void*) == 8 ? 62 : 12)))),
      reserved_(SIZE_MAX / 4),
      committed_(SIZE_MAX / 4),
      has_memory_(false) {}

Arena::~Arena() {
  if (has_memory_) {
    unpoison(0, committed_);
    ::munmap(base_, reserved_);
  }
}

void* Arena::rewind_keeping(size_t mark, const void* p, size_t bytes) {
  char* const start = base_ + mark;
  const char* const source = static_cast<const char*>(p);
  if (source < start || source >= base_ + used_) {
    rewind(mark);
    void* const kept = allocate(bytes);
    return has_memory_ ? std::memcpy(kept, p, bytes) : kept;
  }
  if (source != start && has_memory_) std::memmove(start, source, bytes);
  rewind(mark + ((bytes + 63) & ~size_t{63}));
  return start;
}

void Arena::grow(size_t bytes) {
  if (bytes > reserved_ - kStep || used_ > reserved_ - kStep - bytes)  // reserved_ is at least kSmallest
    throw RunError("activations need " + std::to_string(bytes >> 20) + " MiB more on top of " + std::to_string(used_ >> 20) +
                   " MiB, beyond the " + std::to_string(reserved_ >> 20) +
                   " MiB of address space reserved for them; use a shorter prompt or smaller steps");
  const size_t wanted = std::min((used_ + bytes + kStep - 1) / kStep * kStep, reserved_);
  if (::mprotect(base_ + committed_, wanted - committed_, PROT_READ | PROT_WRITE) != 0)
    throw RunError("the system refuses " + std::to_string((wanted - committed_) >> 20) + " MiB of memory for activations");
  poison(committed_, wanted - committed_);
  committed_ = wanted;
}

#ifdef VITRINE_ASAN
void Arena::poison(size_t begin, size_t size) {
  if (has_memory_) __asan_poison_memory_region(base_ + begin, size);
}
void Arena::unpoison(size_t begin, size_t size) {
  if (has_memory_) __asan_unpoison_memory_region(base_ + begin, size);
}
#else
void Arena::poison(size_t, size_t) {}
void Arena::unpoison(size_t, size_t) {}
#endif

}  // namespace vitrine
