#pragma once
// Shows a file that was just written.
#include <string>

namespace vitrine::cli {

/// Opens a page in the reader's browser, without waiting for it: the program that BROWSER names, else `open` on macOS and
/// `xdg-open` elsewhere. Errors: RunError naming the program that cannot be started, and the file.
void open_page(const std::string& path);

}  // namespace vitrine::cli
