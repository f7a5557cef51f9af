#include "base/huge_pages.h"

#include <sys/mman.h>
#ifdef __linux__
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/cpu_topology.h"

namespace vitrine {
namespace {

constexpr size_t kHugePage = size_t{2} << 20, kPiece = 16 * kHugePage;

uintptr_t address_of(const std::byte* p) { return reinterpret_cast<uintptr_t>(p); }

#ifdef __linux__
// Exchanges mapped bytes, whole huge pages, for a copy. False: they are as before.
bool exchange(std::span<const std::byte> piece) {
  const std::span<std::byte> copy = map_huge_pages(piece.size());
  if (copy.empty()) return false;
  std::memcpy(copy.data(), piece.data(), piece.size());
  void* const place = const_cast<std::byte*>(piece.data());
  // The kernel holds the lock of the address space from the unmapping of the old pages to the moving of the new ones: a reader
  // that misses in between waits.
  if (::mprotect(copy.data(), copy.size(), PROT_READ) == 0 &&
      ::mremap(copy.data(), copy.size(), copy.size(), MREMAP_MAYMOVE | MREMAP_FIXED, place) != MAP_FAILED)
    return true;
  unmap_huge_pages(copy);
  return false;
}
#endif

}  // namespace

std::span<std::byte> map_huge_pages(size_t bytes) {
#ifdef __linux__
  if (bytes == 0 || bytes > SIZE_MAX / 2) return {};
  const size_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage, all = size + kHugePage;
  void* const mapped = ::mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return {};
  auto* const begin = static_cast<std::byte*>(mapped);
  const size_t before = (kHugePage - address_of(begin) % kHugePage) % kHugePage, behind = kHugePage - before;
  if (before > 0) ::munmap(begin, before);
  if (behind > 0) ::munmap(begin + before + size, behind);
  const std::span<std::byte> pages(begin + before, size);
  if (::madvise(pages.data(), size, MADV_HUGEPAGE) == 0) return pages;
  unmap_huge_pages(pages);  // this kernel has no huge pages
#else
  static_cast<void>(bytes);
#endif
  return {};
}

void unmap_huge_pages(std::span<std::byte> pages) {
  if (!pages.empty()) ::munmap(pages.data(), pages.size());
}

HugePageCopy::HugePageCopy(std::vector<std::span<const std::byte>> maps, Near near)
    : maps_(std::move(maps)), near_(std::move(near)) {
#ifdef __linux__
  thread_ = std::thread([this] { copy(); });
#endif
}

HugePageCopy::~HugePageCopy() {
  stop_ = true;
  wait();
}

void HugePageCopy::wait() {
  if (thread_.joinable()) thread_.join();
}

void HugePageCopy::copy() {
#ifdef __linux__
  // Those who compute go first.
  static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 10));
  const std::vector<int> anywhere = allowed_cpus();
  std::span<const int> here = anywhere;
  const auto near = [&](const std::byte* page) {
    const std::span<const int> cpus = near_ ? near_({page, kHugePage}) : std::span<const int>();
    return cpus.empty() ? std::span<const int>(anywhere) : cpus;
  };
  for (const std::span<const std::byte> map : maps_) {
    size_t at = (kHugePage - address_of(map.data()) % kHugePage) % kHugePage;
    for (size_t piece; at + kHugePage <= map.size() && !stop_; at += piece) {
      piece = std::min(kPiece, (map.size() - at) / kHugePage * kHugePage);
      if (near_) {
        const std::span<const int> cpus = near(map.data() + at);
        size_t together = kHugePage;  // pages that belong there too
        while (together < piece && std::ranges::equal(near(map.data() + at + together), cpus)) together += kHugePage;
        piece = together;
        if (!std::ranges::equal(cpus, here) && stay_on(cpus)) here = cpus;  // where it is not allowed, pages lie anywhere
      }
      if (!exchange(map.subspan(at, piece))) return;
      bytes_ += piece;
    }
  }
#endif
}

}  // namespace vitrine
