// How fast a text becomes ids: one call, cold, on a tokenizer just loaded.
//
//   bench_tokenizer MODEL TEXT [THREADS [IDS]]
//
// Prints one line of JSON: seconds of the call (loading not counted), ids, bytes of the text. IDS is a file for the ids, as
// int32; with it the seconds of decoding them are measured, too. bench/compare_tokenizers.py runs this beside other tokenizers.
#include "tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>

#include "base/stopwatch.h"
#include "base/thread_pool.h"

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) {
    fmt::print(stderr, "usage: bench_tokenizer MODEL TEXT [THREADS [IDS]]\n");
    return 2;
  }
  try {
    const auto tokenizer = vitrine::load_tokenizer(argv[1]);
    std::ifstream in(argv[2], std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    vitrine::ThreadPool pool(argc > 3 ? std::atoi(argv[3]) : 1);
    const vitrine::Stopwatch clock;
    const std::vector<int32_t> ids = tokenizer->encode(text, /*add_special=*/false, vitrine::Special::as_file, pool);
    const double seconds = clock.ms() / 1000;
    double decode_seconds = 0;
    if (argc > 4) {
      std::ofstream(argv[4], std::ios::binary)
          .write(reinterpret_cast<const char*>(ids.data()), std::streamsize(ids.size() * sizeof(int32_t)));
      const vitrine::Stopwatch back;
      static_cast<void>(tokenizer->decode(ids));
      decode_seconds = back.ms() / 1000;
    }
    fmt::print("{{\"seconds\": {:.6f}, \"decode_seconds\": {:.6f}, \"ids\": {}, \"bytes\": {}}}\n", seconds, decode_seconds,
               ids.size(), text.size());
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_tokenizer: {}\n", e.what());
    return 1;
  }
  return 0;
}
