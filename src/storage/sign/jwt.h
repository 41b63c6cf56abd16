/* storage/sign/jwt.h: JSON Web Tokens signed with RS256 (RFC 7518). Pure.
 * Owner: values. Threads: any. Memory: libcrypto's, while it signs. Bound: the caller's buffer. */
#ifndef STORAGE_SIGN_JWT_H
#define STORAGE_SIGN_JWT_H

#include "base/base.h"

/* Writes the token of these claims (JSON). key: a private key in PEM; key_id: "" for none.
 * Returns 0 on success, STOKER_ERROR_FORMAT if key is no RSA key, STOKER_ERROR_LIMIT if the token
 * does not fit. */
int stk_jwt_rs256(const char *key, const char *key_id, const char *claims, char *out,
                  size_t out_bytes, struct stoker_error *error);

#endif
