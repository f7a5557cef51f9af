// Maps of memory for a system that has none: what is mapped is allocated, and a file's bytes are read into it.
#pragma once
#include <stddef.h>
#include <sys/types.h>
// The C library has functions of these names, which refuse or clear what they give.
#define mmap vitrine_mmap
#define munmap vitrine_munmap
#define PROT_NONE 0
#define PROT_READ 1
#define PROT_WRITE 2
#define MAP_SHARED 1
#define MAP_PRIVATE 2
#define MAP_ANONYMOUS 4
#define MAP_NORESERVE 8
#define MAP_FAILED ((void*)-1)
#define MADV_HUGEPAGE 1
#define MADV_WILLNEED 2
#define MADV_DONTNEED 3
#ifdef __cplusplus
extern "C" {
#endif
/// Of anonymous memory the content is undefined, unlike a system's.
void* mmap(void* address, size_t size, int protection, int flags, int file, off_t offset);
int munmap(void* address, size_t size);
inline int mprotect(void*, size_t, int) { return 0; }
inline int madvise(void*, size_t, int) { return 0; }
#ifdef __cplusplus
}
#endif
