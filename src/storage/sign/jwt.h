/* storage/sign/jwt.h: a statement signed by a key: RS256 of RFC 7518. Pure.
 * Owner: values. Threads: any. Memory: libcrypto's, while it signs. Bound: the caller's buffer. */
#ifndef STORAGE_SIGN_JWT_H
#define STORAGE_SIGN_JWT_H

#include "base/base.h"

/* The token of these claims (JSON). key: a private key in PEM; key_id: "" for none. FORMAT: it is
 * no RSA key; LIMIT: no room. */
int stk_jwt_rs256(const char *key, const char *key_id, const char *claims, char *out,
                  size_t out_bytes, struct stoker_error *error);

#endif
