#pragma once
// The start page of the book (book/index.html.jinja).
#include <string>

#include "picture/data/values.h"

namespace vitrine {

/// The page as HTML without scripts. values: {version, documents, opening, chapters, pages, models}: a link or ""; {file, alt} or
/// null; lists of {file, title, summary, size}; chapters also have a `number`, pages the `command` that makes them. Errors:
/// InputError for a value that is missing.
std::string book_page(const PictureJson& values);

}  // namespace vitrine
