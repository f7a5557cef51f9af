#pragma once
// GET /: the page that talks to this server (web/src/chat), as it was compiled in. GET /explain: that of the walk-through
// (web/src/served).
#include "http/message.h"

namespace vitrine::serve {

/// The page with its Content-Security-Policy and ETag, or 304 without a body if the request's If-None-Match names that ETag.
/// Errors: ApiError 404 if this build lacks the page's bundle.
http::Response page_response(const http::Request& request);
/// The same of /explain.
http::Response walk_page_response(const http::Request& request);

}  // namespace vitrine::serve
