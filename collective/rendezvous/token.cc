#include "lockstep/collective/rendezvous/token.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/check.h"

namespace lockstep::internal_collective {

std::string Mac(absl::string_view key, absl::string_view text) {
  // HMAC() accepts no null pointer for an empty key.
  const char* const key_bytes = key.empty() ? "" : key.data();
  unsigned char mac[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  LOCKSTEP_CHECK(HMAC(EVP_sha256(), key_bytes, static_cast<int>(key.size()),
                      reinterpret_cast<const unsigned char*>(text.data()),
                      text.size(), mac, &size) != nullptr);
  LOCKSTEP_CHECK(size == kMacBytes);
  return std::string(reinterpret_cast<const char*>(mac), size);
}

bool SameMac(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() &&
         CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

absl::StatusOr<std::string> RandomBytes(size_t size) {
  std::string bytes(size, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&bytes[0]),
                 static_cast<int>(size)) != 1) {
    return absl::UnavailableError(
        absl::StrCat("the system gave no ", size,
                     " random bytes, which a rendezvous needs"));
  }
  return bytes;
}

}  // namespace lockstep::internal_collective
