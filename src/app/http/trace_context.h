#pragma once
// W3C Trace Context (https://www.w3.org/TR/trace-context-1/): which trace a request is a part of.
#include <optional>
#include <string>

#include "http/message.h"

namespace vitrine::http {

/// Numbers in small hexadecimal digits, as the header has them.
struct TraceContext {
  std::string trace_id;   // 32 digits; empty: the request is part of no trace
  std::string parent_id;  // 16 digits: the client's span; empty: the trace begins here
  std::string span_id;    // 16 digits: the span that is this request; empty: spans are not kept
  bool sampled = false;   // the trace is recorded
};

/// What the header traceparent tells: trace_id, parent_id and sampled. Nothing without one, or with one that is not as the
/// standard has it, which is as if there were none.
std::optional<TraceContext> read_traceparent(const Request& request);
/// The context of a request's own span: within the client's trace, else in one that begins with it.
TraceContext with_own_span(std::optional<TraceContext> client);

}  // namespace vitrine::http
