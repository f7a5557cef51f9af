#pragma once
// A shared library that is loaded when something needs it, rather than linked to a program that mostly does not.
namespace vitrine {

/// Stays loaded until the program ends.
class LoadedLibrary {
 public:
  /// `who` is "downloads need" or the like, as the message begins; Debian's `package` holds `file`. Errors: RunError.
  LoadedLibrary(const char* who, const char* file, const char* package);

  /// Sets `function` to that of this name, in the library or in one that it needs. Errors: RunError.
  template <class F>
  void find(F& function, const char* name) const {
    function = reinterpret_cast<F>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;
  [[noreturn]] void fail(const char* why) const;
  const char *who_, *file_, *package_;
  void* handle_;
};

}  // namespace vitrine
