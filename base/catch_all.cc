#include "lockstep/base/catch_all.h"

#include <cxxabi.h>

#include <cerrno>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <system_error>  // NOLINT: what the standard library throws
#include <typeinfo>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

// Whether the system said that it has no more of something.
bool IsShortage(const std::error_code& code) {
  if (code.category() != std::generic_category() &&
      code.category() != std::system_category()) {
    return false;
  }
  switch (code.value()) {
    case EAGAIN:  // no thread could be started
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
      return true;
    default:
      return false;
  }
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
    const std::string text =
        absl::StrCat(what, " threw ", TypeOf(error), ": ", error.what());
    return IsShortage(error.code()) ? absl::ResourceExhaustedError(text)
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
    // A Status without text needs no memory.
    return absl::Status(absl::StatusCode::kResourceExhausted, "");
  }
}

}  // namespace lockstep
