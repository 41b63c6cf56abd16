/* storage/config/config_digest.h: the environment variables that select stores and credentials, as
 * a digest: processes with the same digest get the same objects for a URL.
 *
 * Owner: the caller. Threads: any, while none changes the environment. Memory: none.
 * Bound: the list of variables. */
#ifndef STORAGE_CONFIG_CONFIG_DIGEST_H
#define STORAGE_CONFIG_CONFIG_DIGEST_H

#include "base/crypto/digest.h"

/* Adds all variables to the digest. Variables that change while the identity stays the same
 * (session tokens) are not included. */
void stk_config_digest_add(struct stk_sha256 *sha);

#endif
