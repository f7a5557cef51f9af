// In the place of the server where Boost's headers were missing when the program was built (folder.cmake).
#include "http/server.h"

#include "base/error.h"

namespace vitrine::http {

struct Server::Impl {};

bool can_serve() { return false; }

Server::Server(ServerOptions, Handler) {
  throw RunError(
      "this program was built without serving, for lack of Boost's headers (1.81 or later). On Debian and Ubuntu install "
      "libboost1.81-dev or libboost-dev, and build again");
}
Server::~Server() = default;
uint16_t Server::port() const { return 0; }
std::string Server::url() const { return {}; }
void Server::set_keys(const std::vector<ApiKey>&) {}
void Server::reload_certificate() {}
void Server::stop_accepting() {}
bool Server::quiet() const { return true; }
ServerStats Server::stats() const { return {}; }

}  // namespace vitrine::http
