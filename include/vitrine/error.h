#pragma once
// The errors vitrine throws. Wrong input (files, flags, requests, shapes) ends the request or the command with a
// message that gives file, field, found, expected and what to do; it never ends the process.
#include <stdexcept>
#include <string>

namespace vitrine {

/// Base of all exceptions that vitrine throws. what() is a complete message for the user.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The input is wrong: a file, a flag, a request, a configuration. The command line exits with 2.
class InputError : public Error {
 public:
  using Error::Error;
};

/// A file is missing, unreadable, truncated or has impossible contents. The message begins with its path.
class FileError : public InputError {
 public:
  FileError(const std::string& path, const std::string& problem) : InputError(path + ": " + problem) {}
};

/// Two sizes that must agree do not.
class ShapeError : public InputError {
 public:
  using InputError::InputError;
};

/// A call that the library does not allow in this state.
class UsageError : public InputError {
 public:
  using InputError::InputError;
};

/// The input was valid but the run failed (NaN in the logits, memory, disk). Exit code 1.
class RunError : public Error {
 public:
  using Error::Error;
};

}  // namespace vitrine
