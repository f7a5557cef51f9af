#pragma once
// Mapped files in huge pages: reading weights from them misses fewer translations of addresses than from the page cache.
#include <atomic>
#include <cstddef>
#include <functional>
#include <span>
#include <thread>
#include <vector>

namespace vitrine {

/// Copies maps of files into huge pages of this process's own, in a thread in the background, while others read them: each piece
/// takes the place of the file's pages at the same addresses, in one step, so pointers and values stay. The ends of a map that
/// fill no huge page stay the file's, and so does what the system has no memory for. The page cache keeps the file, so that it
/// opens as fast again; its pages are no longer this process's.
class HugePageCopy {
 public:
  /// The processors on which a huge page shall be copied, so that it lies in the memory near them; empty: any.
  using Near = std::function<std::span<const int>(std::span<const std::byte> page)>;
  /// The maps must stay until this is destroyed, which waits for the piece at hand (32 MiB). What `near` gives must stay too.
  explicit HugePageCopy(std::vector<std::span<const std::byte>> maps, Near near = {});
  ~HugePageCopy();
  HugePageCopy(const HugePageCopy&) = delete;
  HugePageCopy& operator=(const HugePageCopy&) = delete;

  /// Bytes that lie in huge pages by now.
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  /// Waits until all is copied that will be.
  void wait();

 private:
  void copy();

  std::vector<std::span<const std::byte>> maps_;
  Near near_;
  std::atomic<size_t> bytes_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// Memory of at least `bytes` that begins at a huge page and asks for them; writable, zero. Empty if there is none.
std::span<std::byte> map_huge_pages(size_t bytes);
void unmap_huge_pages(std::span<std::byte> pages);

}  // namespace vitrine
