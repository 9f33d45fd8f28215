#include "lockstep/base/catch_all.h"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <system_error>  // NOLINT: what the standard library throws
#include <typeinfo>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/system_error.h"

namespace lockstep {
namespace {

// Returns the system's error number, or 0 if the error did not come from the
// system. Asio may have its own category for these numbers. This file does not
// include Asio, so it recognizes that category by its name.
int ErrorOf(const std::error_code& code) {
  const bool is_systems =
      code.category() == std::generic_category() ||
      code.category() == std::system_category() ||
      std::strcmp(code.category().name(), "asio.system") == 0;
  return is_systems ? code.value() : 0;
}

std::string TypeOf(const std::exception& exception) {
  int status = 0;
  char* const name =
      abi::__cxa_demangle(typeid(exception).name(), nullptr, nullptr, &status);
  std::string type = status == 0 ? name : typeid(exception).name();
  std::free(name);
  return type;
}

absl::Status Describe(const char* what) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, " ran out of memory (std::bad_alloc)"));
  } catch (const std::system_error& error) {
    const int number = ErrorOf(error.code());
    const std::string text = absl::StrCat(what, " threw ", TypeOf(error), ": ",
                                          error.what(), RemedyFor(number));
    return IsShortage(number) ? absl::ResourceExhaustedError(text)
                              : absl::UnknownError(text);
  } catch (const std::exception& exception) {
    return absl::UnknownError(absl::StrCat(what, " threw ", TypeOf(exception),
                                           ": ", exception.what()));
  } catch (...) {
    return absl::UnknownError(
        absl::StrCat(what, " threw something that is no std::exception"));
  }
}

}  // namespace

absl::Status CurrentException(const char* what) noexcept {
  try {
    return Describe(what);
  } catch (...) {
    // A Status without a text needs no memory.
    return absl::Status(absl::StatusCode::kResourceExhausted, "");
  }
}

}  // namespace lockstep
