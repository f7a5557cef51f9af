#pragma once
// The content of one file, in several requests at a time.
#include <cstdint>
#include <functional>
#include <string>

#include "hub/cache_folder.h"
#include "hub/client.h"

namespace vitrine {

/// Told while bytes arrive: how many more of the file are on the disk (less, when they had to be thrown away).
using BytesArrived = std::function<void(int64_t bytes)>;

/// Fetches `file` into the folder's blobs. A large file is cut into pieces that are asked for side by side and written in order,
/// so that what is on the disk is always a beginning of the content; a later run goes on behind it. The blob has its name only
/// after its hash was found right. Failed requests are repeated as long as they bring something, and a few times more. Errors:
/// InputError as HubClient; RunError for a server that fails, sends another size or content, and for the disk.
void download(HubClient& client, const RemoteRepository& repository, const RemoteFile& file, const CacheFolder& folder,
              const BytesArrived& arrived);

}  // namespace vitrine
