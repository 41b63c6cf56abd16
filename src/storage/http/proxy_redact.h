/* storage/http/proxy_redact.h: removes the login of a proxy from libcurl's messages. libcurl reads
 * proxies from the environment, and prints the value of a variable that it cannot parse.
 * Owner: values. Threads: any. Memory: the stack. Bound: the caller's buffer. */
#ifndef STORAGE_HTTP_PROXY_REDACT_H
#define STORAGE_HTTP_PROXY_REDACT_H

#include "base/base.h"

/* Replaces the values of proxy variables, and the logins and passwords in them, in a text of at
 * most text_bytes with its NUL. A text that quotes a proxy is replaced as a whole. */
void stk_proxy_redact(char *text, size_t text_bytes);

#endif
