#pragma once
// What a client asked and what it is told, as the routes see them.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vitrine::http {

/// Names with values, in the order in which they came; a name may come twice.
using Fields = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;  // "GET", "POST", ...; HEAD is told as GET, and the answer's body is left out
  std::string path;    // percent-decoded UTF-8 without the query, begins with '/'
  std::string target;  // path and query as they came
  Fields query;        // decoded
  Fields headers;      // values without surrounding spaces
  std::string body;
  std::string id;     // the client's x-request-id if it is usable, else one made here; the answer tells it
  bool admin = true;  // the key may manage the server; true where nobody needs a key
  std::string owner;  // the name of the API key, else the address the request came from

  /// The value of the first header with that name in any case; null without one.
  const std::string* header(std::string_view name) const;
  /// The value of the first query parameter with that name; null without one.
  const std::string* parameter(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string type = "application/json";  // empty: no Content-Type
  std::string body;
  Fields headers;         // besides Content-Type, and those that are the server's: length, connection, date, request id, CORS
  std::string ping = {};  // of a stream: sent whenever nothing else was for ServerOptions::ping_interval
};

/// "Not Found" for 404.
std::string_view reason(int status);

/// Whether `a` and `b` are the same but for the case of ASCII letters.
bool same_word(std::string_view a, std::string_view b);

}  // namespace vitrine::http
